"""Bad-input drill: every reader must refuse bad input in one line, quickly, in little memory, and unexecuted.

`make fuzz` runs it for minutes, tests/test_fuzz.py for seconds. cases.py has valid inputs, mutations.py
changes them, readers.py lists the readers, and workers.py runs each in a process that may die.
"""
