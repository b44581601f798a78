"""The attention rules equal equations 1 and 2 of the paper, evaluated slot by slot."""

import pytest
import torch

from latent_tokens import METHODS
from latent_tokens.core.attention import bidirectional, causal, dense_mask, independent, semi_causal
from latent_tokens.core.layout import Layout

CLEAN, SHOWN, SLOTS = 3, 6, 8


def equation_1(i, j):
    """A_ij = 1[j in C or i = j] for a masked i. Clean tokens attend to clean ones."""
    return j < CLEAN or i == j


def equation_2(i, j):
    """A_ij = 1[j in C or (i, j in M and j <= i)]."""
    return j < CLEAN or (i >= CLEAN and j >= CLEAN and j <= i)


def everything(i, j):
    return True


def the_past(i, j):
    return j <= i


@pytest.mark.parametrize(
    ("rule", "written_out"),
    [(independent, equation_1), (semi_causal, equation_2), (bidirectional, everything), (causal, the_past)],
)
def test_a_rule_is_its_equation_and_padding_sees_itself_alone(rule, written_out):
    layout = Layout(torch.zeros(1, SLOTS).long(), torch.tensor([CLEAN]), torch.tensor([SHOWN]))
    mask = dense_mask(rule, layout)[0]
    for i in range(SLOTS):
        for j in range(SLOTS):
            expected = written_out(i, j) if i < SHOWN and j < SHOWN else i == j
            assert bool(mask[i, j]) == expected, (i, j)
            assert bool(rule(i, j, CLEAN)) == written_out(i, j), (
                i,
                j,
            )  # the rule only: the mask adds the slots that padding attends to


def test_rows_of_one_batch_have_their_own_counts():
    layout = Layout(torch.zeros(2, 5).long(), torch.tensor([1, 4]), torch.tensor([3, 5]))
    together = dense_mask(semi_causal, layout)
    for row in range(2):
        alone = Layout(
            layout.positions[row : row + 1], layout.num_clean[row : row + 1], layout.num_shown[row : row + 1]
        )
        assert (together[row] == dense_mask(semi_causal, alone)[0]).all()


def test_the_table_of_methods_is_the_papers():
    rules = {name: method.attention for name, method in METHODS.items()}
    of_the_paper = ["mdm", "sidm", "scdm", "esolm", "arm", "ar-mtp", "ar-mtp-window-16", "ar-ntp-16"]
    assert list(METHODS) == [*of_the_paper, "mdm-depth", "scdm-depth", "ar-latents"]
    assert all(METHODS[name].depth == "all" for name in of_the_paper)
    assert (rules["mdm"], rules["sidm"], rules["scdm"], rules["esolm"]) == (
        bidirectional,
        independent,
        semi_causal,
        causal,
    )
    assert METHODS["ar-mtp-window-128"].window == 128
    assert METHODS["ar-ntp-5"].targets == "next"
    for wrong in ("ar-ntp-0", "ar-mtp-window-", "gpt", ""):
        with pytest.raises(ValueError, match="must be one of mdm, sidm"):
            METHODS[wrong]
