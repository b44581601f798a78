"""The bad-input drill: every reader of the package is given what it must refuse in one line, at once, in little memory, and without doing it.

`make fuzz` runs it for minutes, tests/test_fuzz.py for seconds. cases.py has valid inputs and mutations.py what is done to them, readers.py
what reads them, workers.py runs one after the other in processes that may die.
"""
