"""`make drill` interrupts a training run, `make fuzz` passes damaged input to every reader."""
