"""The paper's models as pure functions of tensors. examples/minimal.py has the same in one file."""
