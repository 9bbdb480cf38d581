"""Partitions and mixing matrices."""

import pytest
import torch

import mhla


def test_partition_describes_blocks_of_a_ragged_grid():
    partition = mhla.Partition.grid((5, 4), (2, 2))
    assert (partition.tokens, partition.blocks) == (20, 4)
    assert (partition.extents, partition.blocks_per_axis) == ((3, 2), (2, 2))
    assert partition == mhla.Partition.by_extent((5, 4), (3, 2))
    assert partition.block_of[:8].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert partition.slot_of[:8].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert partition.block_offsets.tolist() == [0, 6, 12, 16, 20]
    assert partition.block_order.sort().values.tolist() == list(range(20))
    assert torch.equal(partition.block_of[partition.block_order], partition.block_of.sort().values)
    assert "5x4" in str(partition)


def test_line_cuts_chunks():
    assert mhla.Partition.line(10, 4).block_of.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: mhla.Partition.line(-1, 4), "sizes"),
        (lambda: mhla.Partition.line(4, 0), "extents"),
        (lambda: mhla.Partition.grid((4, 4), (0, 2)), "blocks"),
        (lambda: mhla.Partition.grid((4, 4), (5, 2)), "blocks"),
        (lambda: mhla.Partition.grid((4, 4), (2,)), "blocks"),
        (lambda: mhla.Partition.grid((1, 2, 3, 4), (1, 1, 1, 1)), "sizes"),
    ],
)
def test_impossible_partitions_name_the_argument(make, argument):
    with pytest.raises(ValueError, match=argument):
        make()


def test_paper_and_reference_initialisation_have_the_published_values():
    partition = mhla.Partition.grid((16, 16), (4, 4))
    paper = mhla.mixing_init(partition, dtype=torch.float64)
    torch.testing.assert_close(paper.sum(1), torch.ones(16, dtype=torch.float64))
    assert paper[0, 1].item() == pytest.approx(0.1103345, abs=1e-7)
    linear = mhla.mixing_init(partition, "linear")
    assert linear.dtype == torch.float32
    assert linear[5, 0].item() == pytest.approx(0.0962404, abs=1e-7)
    assert mhla.mixing_init(partition, "exp", sigma=1.0)[0, 0].item() == pytest.approx(0.3603143, abs=1e-7)
    assert mhla.mixing_init(partition, "local", threshold=0.5).equal(torch.eye(16))
    assert mhla.mixing_init(partition, "constant", value=0.25).unique().tolist() == [0.25]


def test_unknown_initialisation_lists_the_known_ones():
    with pytest.raises(ValueError, match="paper, linear"):
        mhla.mixing_init(mhla.Partition.line(4, 2), "nearest")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("heads", [(), (3,)])
def test_projection_clamps_in_place_and_normalises_rows(dtype, heads, device):
    original = torch.randn(*heads, 4, 4, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    mixing = torch.nn.Parameter(original.clone())
    assert mhla.project_mixing(mixing) is mixing
    assert torch.equal(mixing, original.clamp(0, 1))
    mhla.project_mixing(mixing, normalize_rows=True)
    sums = mixing.detach().double().sum(-1)
    torch.testing.assert_close(sums[sums > 0], torch.ones_like(sums[sums > 0]), rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_resizing_to_the_same_layout_changes_nothing():
    partition = mhla.Partition.grid((8, 8), (4, 4))
    mixing = torch.rand(2, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(mhla.resize_mixing(mixing, partition, partition), mixing)
    larger = mhla.resize_mixing(mixing, partition, mhla.Partition.grid((12, 12), (6, 6)))
    assert larger.shape == (2, 36, 36)
    assert larger.dtype == mixing.dtype


def test_extending_a_causal_matrix_keeps_its_corner():
    mixing = mhla.mixing_init(mhla.Partition.line(12, 4), "running-mean")
    extended = mhla.extend_causal_mixing(mixing, 5, "running-mean")
    torch.testing.assert_close(extended, mhla.mixing_init(mhla.Partition.line(20, 4), "running-mean"))
    with pytest.raises(ValueError):
        mhla.extend_causal_mixing(mixing, 5)
