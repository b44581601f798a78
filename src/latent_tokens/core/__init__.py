"""The paper's models as pure functions of tensors: layouts, orders, attention rules, methods, objective, decoding and likelihood."""
