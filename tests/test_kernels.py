"""Every form of attention and of a linear layer equals that of torch, and so do its gradients."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from latent_tokens import METHODS, Size, Transformer
from latent_tokens.core.attention import block_mask, dense_mask, semi_causal
from latent_tokens.core.layout import Layout
from latent_tokens.devices import bf16_is_fast
from latent_tokens.network.kernels import PACKED, attend, linear, packed_weights

ROWS, HEADS, SLOTS, CHANNELS = 3, 2, 24, 8
POSITIONS = torch.arange(SLOTS).expand(ROWS, -1)
RAGGED = Layout(POSITIONS, torch.tensor([0, 9, 3]), torch.tensor([SLOTS, 17, 5]))
MASKS = {
    "none": None,
    "one for all": dense_mask(semi_causal, RAGGED)[1:2, None],
    "one a row": dense_mask(semi_causal, RAGGED)[:, None],
}


def inputs(dtype):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(ROWS, HEADS, SLOTS, CHANNELS, generator=generator).to(dtype).requires_grad_()
        for _ in range(3)
    ]


def value_and_gradients(function, q, k, v):
    """Return, in float32, the output and the gradients of a sum that weighs each number differently."""
    out = function(q, k, v).float()
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return [out, *(gradient.float() for gradient in torch.autograd.grad((out * weights).sum(), [q, k, v]))]


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_attention_and_gradients_are_exact_to_rounding(mask, dtype, tolerance):
    given = inputs(dtype)
    exact = [x.detach().float().requires_grad_() for x in given]
    expected = value_and_gradients(partial(scaled_dot_product_attention, attn_mask=mask), *exact)
    found = value_and_gradients(partial(attend, mask=mask), *given)
    for one, true in zip(found, expected, strict=True):
        torch.testing.assert_close(one, true, atol=tolerance * true.abs().max().item(), rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(attend(*given, mask).float(), expected[0], atol=tolerance * 2, rtol=0)


@pytest.mark.slow  # where no types are checked, as FlexAttention cannot trace rules whose types are
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", [*METHODS, "block-mdm-4"])
def test_block_mask_of_a_method_equals_its_dense_mask(name):
    torch.manual_seed(0)
    net, method = Transformer(Size(32, 4, 3), 9, 160).eval(), METHODS[name]
    known = torch.arange(160) < torch.tensor([0, 30, 3])[:, None]
    tokens = torch.randint(0, 9, (3, 160))
    layout = method.draw(known, torch.tensor([160, 150, 90]), torch.Generator().manual_seed(1))
    inputs = method.input_ids(tokens, layout, 9), layout.positions
    masked = ~layout.clean & layout.shown
    with torch.no_grad():
        blocks, dense = (
            net(*inputs, mask_of(method.attention, layout), masked) for mask_of in (block_mask, dense_mask)
        )
    torch.testing.assert_close(blocks, dense, atol=1e-5, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(16,), (0, 16), (64, 16), (4, 2, 16)], ids=str)
def test_linear_layer_of_any_number_of_rows(shape, bias):
    torch.manual_seed(0)
    layer = nn.Linear(16, 5, bias)
    x = torch.randn(shape)
    plain = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(linear(layer, x), plain, atol=1e-6, rtol=1e-6)
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(layer, x).dtype == torch.bfloat16
    assert linear(layer, x).equal(plain)
    assert linear(layer, x).requires_grad
    layer.register_forward_hook(lambda module, args, output: output + 1)
    with torch.no_grad():
        torch.testing.assert_close(linear(layer, x), plain + 1, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_weights_change_no_bit_and_are_dropped_after_their_context(dtype, bias):
    layer = nn.Linear(24, 36, bias=bias, dtype=dtype)
    inputs = [torch.randn(shape, dtype=dtype) for shape in ((1, 24), (3, 5, 24), (7, 24), (4, 9, 24))]
    inputs[-1] = inputs[-1][:, 5:]  # as the queries of the last layer
    with torch.inference_mode():
        plain = [linear(layer, x) for x in inputs]
        with packed_weights():
            assert all(linear(layer, x).equal(y) for x, y in zip(inputs, plain, strict=True))
            assert bool(PACKED.get()) == (dtype == torch.bfloat16 and bf16_is_fast())
        assert PACKED.get() is None
        layer.weight.mul_(2)
        doubled = linear(layer, inputs[0])
        with packed_weights():
            assert linear(layer, inputs[0]).equal(doubled)


def test_some_outputs_of_a_linear_layer_are_a_slice_of_all():
    layer = nn.Linear(24, 36)
    for x in (torch.randn(5, 24), torch.randn(128, 24), torch.randn(20, 9, 24)[:, 3:]):
        with torch.no_grad():
            torch.testing.assert_close(linear(layer, x, slice(12, None)), layer(x)[..., 12:])
        gradient_on = linear(layer, x, slice(12))
        torch.testing.assert_close(gradient_on, layer(x)[..., :12])
        assert gradient_on.requires_grad
