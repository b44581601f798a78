"""Speed and cost measured on the machine, and checks of an installation."""
