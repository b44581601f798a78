"""A network that is not our Transformer: one layer of attention, embedding and head of the same weights."""

import torch.nn.functional as F
from torch import nn


class Tied(nn.Module):
    """MASK is the last row of the embedding. `fit` sets the attributes that evaluation needs."""

    def __init__(self, mask_id=4, max_length=16, width=8):
        super().__init__()
        self.mask_id = mask_id
        self.embedding = nn.Embedding(mask_id + 1, width)
        self.position_embedding = nn.Embedding(max_length, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, mask_id + 1, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids, positions, mask):
        x = self.embedding(ids) + self.position_embedding(positions)
        query, key, value = self.qkv(x).chunk(3, -1)
        return self.head(x + self.dropout(F.scaled_dot_product_attention(query, key, value, mask)))
