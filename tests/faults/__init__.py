"""Faults: `make drill` interrupts a training run, `make fuzz` passes damaged input to readers.

drill.py lists the faults of run_faults.py and other_faults.py. children.py has the processes that train.
fuzz.py gives each reader of readers.py and commands.py the valid inputs of seeds.py, changed by
corruptions.py and archives.py, and the inputs of hostile.py, in a process of workers.py.
"""
