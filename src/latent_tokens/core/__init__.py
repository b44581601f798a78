"""The paper's models as pure functions of tensors: layouts, methods, objective, sampling and likelihood."""
