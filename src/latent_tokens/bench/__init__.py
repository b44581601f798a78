"""Measured speed and cost, and checks of an installation."""
