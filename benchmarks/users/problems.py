"""140 problems of users, as data: KernelBench, levels 1 and 2.

A problem is a spec, the sizes and constants that KernelBench gives, and two sets of odd sizes. Triton's interpreter checks
the first set in a second; the second set crosses tiles. Shapes follow from the sizes and the spec's signature. Constants
that are not named here have their defaults. What torch computes follows from the spec's `ref`.

    Problem("l1_002_matmul", MATMUL, "M 2048, K 8192, N 4096", PRODUCT)

Not here: making the operands (`cases.py`), running and timing (`run.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

POINTWISE, REDUCTION, NORM, MATMUL = "pointwise", "reduction", "norm", "matmul"
CONV, TRANSPOSED, POOL, SCAN = "conv", "transposed conv", "pool", "scan"
LOSS, ATTENTION = "loss", "attention"
KINDS = (POINTWISE, REDUCTION, NORM, MATMUL, CONV, TRANSPOSED, POOL, SCAN, LOSS, ATTENTION)


@dataclass(frozen=True, slots=True)
class Problem:
    """`given` and `odd` are sizes and constants by name: "M 2048, K 8192, slope 0.1, ... 3x4x5"."""

    spec: str  # benchmarks/users/<spec>.op
    kind: str  # what it is, or at level 2 what it begins with
    given: str
    odd: tuple[str, str]
    fills: str = ""  # operands that are not normal: "t signs, draws uniform"
    eager: str = ""  # what a user's torch says where the spec's `ref` says more

    @property
    def level(self) -> int:
        return int(self.spec[1])


def odd(family: tuple[str, str], *more: str) -> tuple[str, str]:
    """A family's odd sizes, with what one problem adds to the first and the second, or changes."""
    small, large = (*more, "", "")[:2]
    return f"{family[0]}, {small}".rstrip(", "), f"{family[1]}, {large}".rstrip(", ")


ANY = ("... 3x37", "... 5x7x1031")
ROWS = ("N 3, D 37", "N 67, D 1031")
MIDDLE = ("B 2, M 7, N 5", "B 3, M 131, N 67")
IMAGES = ("N 2, C 6, H 9, W 7", "N 3, C 10, H 37, W 29")
SQUARE = ("N 19", "N 131")
PRODUCT = ("M 5, K 37, N 24", "M 67, K 139, N 134")
LINEAR = PRODUCT
CONV2D = ("N 2, C 3, H 9, W 7, F 6, R 3, S 3", "N 3, C 19, H 37, W 29, F 34, R 3, S 2")
CONV3D = (
    "N 2, C 3, D 5, H 6, W 7, F 6, K 3, R 3, S 3",
    "N 2, C 5, D 7, H 11, W 12, F 34, K 3, R 3, S 2",
)
CONV_TRANSPOSE2D = ("N 2, C 3, H 3, W 4, F 6, R 3, S 3", "N 3, C 19, H 17, W 13, F 34, R 3, S 4")
CONV_TRANSPOSE3D = (
    "N 2, C 3, D 3, H 2, W 2, F 6, K 3, R 3, S 3",
    "N 2, C 5, D 4, H 7, W 6, F 34, K 3, R 2, S 4",
)

# fmt: off
PROBLEMS = (
    # ---- level 1 ------------------------------------------------------------------------------------
    Problem("l1_001_square_matmul", MATMUL, "N 4096", SQUARE),
    Problem("l1_002_matmul", MATMUL, "M 2048, K 8192, N 4096", PRODUCT),
    Problem("l1_003_batched_matmul", MATMUL, "B 128, M 512, K 1024, N 2048", odd(PRODUCT, "B 2", "B 5")),
    Problem("l1_004_matrix_vector", MATMUL, "M 2048, K 1048576", PRODUCT),
    Problem("l1_005_matrix_scalar", POINTWISE, "M 65536, N 16384, s 3.14", odd(PRODUCT, "s 3.14", "s -0.7")),
    Problem("l1_007_matmul_small_k", MATMUL, "M 32768, K 64, N 32768", PRODUCT),
    Problem("l1_009_matmul_tall_skinny", MATMUL, "M 32768, K 32, N 32768", PRODUCT),
    Problem("l1_011_tensor_matmul", MATMUL,
            "B 8, I 256, J 512, L 256, K 768", ("B 2, I 3, J 2, L 11, K 5", "B 3, I 7, J 11, L 67, K 35")),
    Problem("l1_013_symmetric_matmul", MATMUL, "N 4096", SQUARE, fills="a symmetric, b symmetric"),
    Problem("l1_014_upper_triangular_matmul", MATMUL,
            "N 4096", SQUARE,
            fills="a upper, b upper",
            eager="torch.triu(torch.matmul(a, b))"),
    Problem("l1_016_matmul_transposed_a", MATMUL, "K 8192, M 2048, N 4096", PRODUCT),
    Problem("l1_018_matmul_transposed_both", MATMUL, "K 8192, M 2048, N 4096", PRODUCT),
    Problem("l1_019_relu", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_020_leaky_relu", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_021_sigmoid", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_023_softmax", NORM, "N 4096, D 393216", ROWS),
    Problem("l1_027_selu", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_028_hardsigmoid", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_029_softplus", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_030_softsign", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_031_elu", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_032_hardtanh", POINTWISE, "... 4096x393216", ANY),
    Problem("l1_033_batch_norm", NORM, "N 64, C 64, H 512, W 512", IMAGES),
    Problem("l1_035_group_norm", NORM, "N 112, C 64, H 512, W 512", odd(IMAGES, "groups 3", "groups 2")),
    Problem("l1_037_frobenius_norm", NORM, "... 112x64x512x512", ANY),
    Problem("l1_039_l2_norm", NORM, "N 32768, D 65535", ROWS),
    Problem("l1_040_layer_norm", NORM, "N 16, C 64, H 256, W 256", IMAGES),
    Problem("l1_041_max_pool1d", POOL, "N 64, C 192, L 65536", ("N 2, C 3, L 29", "N 3, C 5, L 1031")),
    Problem("l1_042_max_pool2d", POOL, "N 32, C 64, H 512, W 512", IMAGES),
    Problem("l1_045_avg_pool2d", POOL, "N 16, C 64, H 2048, W 2048", odd(IMAGES, "H 23, W 12", "H 47, W 61")),
    Problem("l1_046_avg_pool3d", POOL,
            "N 16, C 32, D 128, H 128, W 256", ("N 2, C 2, D 3, H 5, W 4", "N 2, C 3, D 9, H 14, W 31")),
    Problem("l1_048_middle_mean", REDUCTION, "B 128, M 4096, N 4095", MIDDLE),
    Problem("l1_049_middle_max", REDUCTION, "B 128, M 4096, N 4095", MIDDLE),
    Problem("l1_050_conv2d", CONV, "N 256, C 3, H 224, W 224, F 96, R 11, S 11", CONV2D),
    Problem("l1_051_argmax", REDUCTION, "B 128, M 4096, N 4095", MIDDLE),
    Problem("l1_053_middle_min", REDUCTION, "B 128, M 4096, N 4095", MIDDLE),
    Problem("l1_054_conv3d", CONV, "N 16, C 3, D 64, H 64, W 64, F 64, K 3, R 3, S 3", CONV3D),
    Problem("l1_055_conv2d_wide", CONV, "N 8, C 64, H 512, W 1024, F 128, R 3, S 3", CONV2D),
    Problem("l1_057_conv_transpose2d", TRANSPOSED,
            "N 8, C 64, H 1024, W 1024, F 64, R 3, S 3", CONV_TRANSPOSE2D),
    Problem("l1_059_conv3d_flat_kernel", CONV, "N 16, C 3, D 256, H 256, W 10, F 64, K 3, R 3, S 1", CONV3D),
    Problem("l1_061_conv_transpose3d", TRANSPOSED,
            "N 8, C 48, D 64, H 64, W 64, F 48, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l1_062_conv2d_wide_kernel", CONV, "N 8, C 32, H 512, W 512, F 64, R 5, S 9", CONV2D),
    Problem("l1_063_conv2d_square", CONV, "N 16, C 16, H 1024, W 1024, F 128, R 3, S 3", CONV2D),
    Problem("l1_064_conv_transpose1d", TRANSPOSED,
            "N 64, C 128, L 65536, F 128, R 3", ("N 2, C 3, L 9, F 5, R 3", "N 3, C 19, L 131, F 34, R 3")),
    Problem("l1_066_conv3d_odd_kernel", CONV, "N 8, C 3, D 16, H 128, W 128, F 64, K 3, R 5, S 7", CONV3D),
    Problem("l1_067_conv1d", CONV,
            "N 32, C 64, L 131072, F 128, R 3", ("N 2, C 3, L 9, F 5, R 3", "N 3, C 19, L 131, F 34, R 3")),
    Problem("l1_068_conv_transpose3d_wide_kernel", TRANSPOSED,
            "N 16, C 32, D 64, H 64, W 64, F 64, K 3, R 5, S 5", CONV_TRANSPOSE3D),
    Problem("l1_069_conv_transpose2d_wide_kernel", TRANSPOSED,
            "N 64, C 64, H 128, W 256, F 128, R 3, S 5", CONV_TRANSPOSE2D),
    Problem("l1_070_conv_transpose3d_narrowing", TRANSPOSED,
            "N 8, C 48, D 96, H 96, W 96, F 24, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l1_071_conv_transpose2d_wide", TRANSPOSED,
            "N 8, C 32, H 512, W 1024, F 32, R 3, S 3", CONV_TRANSPOSE2D),
    Problem("l1_072_conv_transpose3d_grouped", TRANSPOSED,
            "N 8, C 32, D 12, H 24, W 48, Fg 8, K 3, R 5, S 7",
            ("N 2, C 6, D 2, H 3, W 3, Fg 2, K 3, R 5, S 7, groups 3",
             "N 2, C 10, D 4, H 5, W 7, Fg 7, K 3, R 5, S 6, groups 2")),
    Problem("l1_073_conv_transpose3d_strided", TRANSPOSED,
            "N 4, C 32, D 32, H 64, W 128, F 32, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l1_074_conv_transpose1d_dilated", TRANSPOSED,
            "N 32, C 32, L 131072, F 64, R 5", ("N 2, C 3, L 9, F 5, R 4", "N 3, C 19, L 131, F 34, R 5")),
    Problem("l1_078_conv_transpose2d_padded", TRANSPOSED,
            "N 8, C 32, H 512, W 1024, F 32, R 3, S 7", odd(CONV_TRANSPOSE2D, "S 7", "S 9")),
    Problem("l1_080_conv2d_dilated", CONV, "N 8, C 32, H 512, W 512, F 64, R 5, S 9", CONV2D),
    Problem("l1_081_conv_transpose2d_strided_dilated", TRANSPOSED,
            "N 16, C 32, H 64, W 128, F 64, R 3, S 3", CONV_TRANSPOSE2D),
    Problem("l1_082_depthwise_conv2d", CONV, "N 16, C 64, H 512, W 512, R 3, S 3", CONV2D),
    Problem("l1_083_depthwise_conv2d_column", CONV, "N 64, C 8, H 512, W 512, R 3, S 1", CONV2D),
    Problem("l1_084_depthwise_conv2d_wide", CONV, "N 64, C 128, H 256, W 512, R 3, S 3", CONV2D),
    Problem("l1_086_separable_conv2d", CONV, "N 16, C 64, H 512, W 512, R 3, S 3, F 128", CONV2D),
    Problem("l1_088_gelu_tanh", POINTWISE, "... 8192x8192", ANY),
    Problem("l1_089_cumsum", SCAN, "N 32768, D 32768", ROWS),
    Problem("l1_090_cumprod", SCAN, "N 32768, D 32768", ROWS, fills="x near_one"),
    Problem("l1_092_exclusive_cumsum", SCAN, "N 32768, D 32768", ROWS),
    Problem("l1_094_mse", LOSS, "N 32768, D 32768", ROWS),
    Problem("l1_095_cross_entropy", LOSS,
            "N 32768, V 4096", ("N 5, V 13", "N 67, V 1031"),
            fills="target labels"),
    Problem("l1_096_smooth_l1", LOSS, "N 32768, D 32768", ROWS),
    Problem("l1_097_attention", ATTENTION,
            "B 32, H 32, S 512, E 1024, L 512", ("B 2, H 1, S 5, E 8, L 7", "B 2, H 3, S 37, E 72, L 67")),
    Problem("l1_099_triplet_margin", LOSS, "N 32768, D 8192", ROWS),
    Problem("l1_100_hinge", LOSS, "N 32768, D 32768", ROWS, fills="t signs"),
    # ---- level 2 ------------------------------------------------------------------------------------
    Problem("l2_001_conv2d_relu_bias_add", CONV, "N 128, C 64, H 128, W 128, F 128, R 3, S 3", CONV2D),
    Problem("l2_002_conv_transpose2d_clamps", TRANSPOSED,
            "N 128, C 64, H 128, W 128, F 64, R 3, S 3", CONV_TRANSPOSE2D),
    Problem("l2_005_conv_transpose2d_subtract_tanh", TRANSPOSED,
            "N 32, C 64, H 256, W 256, F 64, R 4, S 4", CONV_TRANSPOSE2D),
    Problem("l2_006_conv3d_softmax_max_pools", CONV,
            "N 128, C 3, D 16, H 32, W 32, F 16, K 3, R 3, S 3", odd(CONV3D, "D 7, H 8, W 6")),
    Problem("l2_007_conv3d_four_activations", CONV,
            "N 64, C 8, D 32, H 64, W 64, F 32, K 3, R 3, S 3", CONV3D),
    Problem("l2_008_conv3d_divide_max_pool_mean_sum", CONV,
            "N 128, C 8, D 16, H 64, W 64, F 16, K 3, R 3, S 3", CONV3D),
    Problem("l2_009_linear_subtract_multiply_relu", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_010_conv_transpose2d_max_pool_hardtanh_mean", TRANSPOSED,
            "N 128, C 64, H 256, W 256, F 64, R 3, S 3", CONV_TRANSPOSE2D),
    Problem("l2_012_linear_multiply_leaky_relu", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_014_matmul_divide_sum_scale", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_015_conv_transpose3d_batch_norm_subtract_mean", TRANSPOSED,
            "N 16, C 16, D 16, H 32, W 32, F 32, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l2_018_linear_sum_max_mean_logsumexps", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_019_conv_transpose2d_gelu_group_norm", TRANSPOSED,
            "N 128, C 64, H 256, W 256, F 64, R 3, S 3", odd(CONV_TRANSPOSE2D, "groups 3", "groups 2")),
    Problem("l2_020_conv_transpose3d_residuals", TRANSPOSED,
            "N 16, C 32, D 16, H 32, W 32, F 64, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l2_021_conv2d_scale_sigmoid_group_norm", CONV,
            "N 128, C 8, H 256, W 256, F 32, R 3, S 3", odd(CONV2D, "groups 3", "groups 2")),
    Problem("l2_023_conv3d_group_norm_mean", CONV,
            "N 128, C 3, D 24, H 32, W 32, F 24, K 3, R 3, S 3", odd(CONV3D, "groups 3", "groups 2")),
    Problem("l2_024_conv3d_min_softmax", CONV, "N 128, C 3, D 24, H 32, W 32, F 24, K 3, R 3, S 3", CONV3D),
    Problem("l2_027_conv3d_hardswish_group_norm_mean", CONV,
            "N 1024, C 3, D 16, H 32, W 32, F 16, K 4, R 4, S 4", odd(CONV3D, "groups 3", "groups 2")),
    Problem("l2_029_linear_mish_mish", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_030_linear_group_norm_hardtanh", MATMUL,
            "M 1024, K 8192, N 8192", odd(LINEAR, "groups 3", "groups 2")),
    Problem("l2_031_conv2d_min_add_multiply", CONV, "N 128, C 64, H 128, W 128, F 128, R 3, S 3", CONV2D),
    Problem("l2_032_conv2d_scale_min", CONV, "N 64, C 64, H 256, W 256, F 128, R 3, S 3", CONV2D),
    Problem("l2_033_linear_scale_batch_norm", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_034_conv_transpose3d_layer_norm_gelu", TRANSPOSED,
            "N 32, C 32, D 16, H 32, W 32, F 64, K 4, R 4, S 4, Q 64", odd(CONV_TRANSPOSE3D, "Q 3", "Q 12")),
    Problem("l2_035_conv2d_subtract_hardswish_max_pool_mish", CONV,
            "N 128, C 64, H 128, W 128, F 128, R 3, S 3", CONV2D),
    Problem("l2_036_conv_transpose2d_min_sum_gelu_add", TRANSPOSED,
            "N 16, C 64, H 128, W 128, F 128, R 3, S 3", CONV_TRANSPOSE2D),
    Problem("l2_038_avg_pool3d_conv_transpose3d_clamp_softmax", TRANSPOSED,
            "N 32, C 32, D 32, H 64, W 64, F 64, K 3, R 3, S 3",
            odd(CONV_TRANSPOSE3D, "D 4, H 5, W 7", "D 8, H 11, W 13")),
    Problem("l2_039_linear_scale_batch_norm_tall", MATMUL, "M 16384, K 4096, N 4096", LINEAR),
    Problem("l2_040_linear_scale_residual", MATMUL, "M 16384, K 4096, N 4096", LINEAR),
    Problem("l2_042_conv_transpose2d_mean_add_logsumexp", TRANSPOSED,
            "N 16, C 64, H 512, W 512, F 128, R 3, S 3", CONV_TRANSPOSE2D),
    Problem("l2_043_conv3d_max_pool_logsumexp_relu", CONV,
            "N 4, C 32, D 32, H 128, W 128, F 64, K 3, R 3, S 3", CONV3D),
    Problem("l2_044_conv_transpose2d_multiply_mean_mean", TRANSPOSED,
            "N 16, C 64, H 128, W 128, F 128, R 3, S 3", CONV_TRANSPOSE2D),
    Problem("l2_045_linear_sigmoid_linear_logsumexp", MATMUL,
            "M 16384, K 2048, J 4096, N 1024", odd(LINEAR, "J 11", "J 67")),
    Problem("l2_047_conv3d_mish_tanh", CONV, "N 16, C 32, D 32, H 64, W 64, F 64, K 3, R 3, S 3", CONV3D),
    Problem("l2_049_conv_transpose3d_softmax_sigmoid", TRANSPOSED,
            "N 16, C 32, D 16, H 32, W 32, F 64, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l2_051_linear_mean_logsumexp_gelu_residual", MATMUL, "M 2048, K 8192, N 8192", LINEAR),
    Problem("l2_056_linear_sigmoid_sum", MATMUL, "M 128, K 32768, N 32768", LINEAR),
    Problem("l2_057_conv2d_relu_hardswish", CONV, "N 128, C 8, H 128, W 128, F 64, R 3, S 3", CONV2D),
    Problem("l2_058_conv_transpose3d_logsumexp_hardswish_subtract_clamp", TRANSPOSED,
            "N 128, C 3, D 16, H 32, W 32, F 16, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l2_059_linear_swish_scale", MATMUL, "M 128, K 32768, N 32768", LINEAR),
    Problem("l2_061_conv_transpose3d_relu_group_norm", TRANSPOSED,
            "N 16, C 64, D 32, H 32, W 32, F 128, K 3, R 3, S 3", odd(CONV_TRANSPOSE3D, "groups 3", "groups 2")),
    Problem("l2_062_linear_group_norm_leaky_relu_double", MATMUL,
            "M 1024, K 8192, N 8192", odd(LINEAR, "groups 3", "groups 2")),
    Problem("l2_063_linear_relu_divide", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_064_linear_logsumexp_leaky_relus_gelus", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_065_conv2d_avg_pool_sigmoid_sum", CONV, "N 128, C 8, H 384, W 384, F 64, R 3, S 3", CONV2D),
    Problem("l2_066_linear_dropout_softmax", MATMUL,
            "M 128, K 16384, N 16384", LINEAR,
            fills="draws uniform",
            eager="h = torch.nn.functional.linear(x, w, b);"
            "torch.softmax(torch.nn.functional.dropout(h, rate), dim=1)"),
    Problem("l2_067_conv2d_gelu_mean", CONV, "N 128, C 8, H 256, W 256, F 64, R 3, S 3", CONV2D),
    Problem("l2_069_conv2d_hardswish_relu", CONV, "N 128, C 8, H 128, W 128, F 64, R 3, S 3", CONV2D),
    Problem("l2_071_conv2d_divide_leaky_relu", CONV, "N 128, C 8, H 128, W 128, F 64, R 3, S 3", CONV2D),
    Problem("l2_072_conv_transpose3d_batch_norm_avg_pools", TRANSPOSED,
            "N 64, C 3, D 32, H 32, W 32, F 16, K 3, R 3, S 3", odd(CONV_TRANSPOSE3D, "H 3, W 4")),
    Problem("l2_073_conv2d_batch_norm_scale", CONV, "N 128, C 8, H 128, W 128, F 64, R 3, S 3", CONV2D),
    Problem("l2_075_linear_group_norm_min_add", MATMUL,
            "M 1024, K 8192, N 8192", odd(LINEAR, "groups 3", "groups 2")),
    Problem("l2_076_matmul_bias_add_relu", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_077_conv_transpose3d_scale_batch_norm_mean", TRANSPOSED,
            "N 16, C 64, D 16, H 32, W 32, F 128, K 5, R 5, S 5", CONV_TRANSPOSE3D),
    Problem("l2_079_conv3d_multiply_instance_norm_clamp_max", CONV,
            "N 128, C 3, D 16, H 32, W 32, F 16, K 3, R 3, S 3", CONV3D),
    Problem("l2_080_linear_max_subtract_mean_gelu", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_081_linear_swish_divide_clamp_tanh_clamp", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_083_conv3d_group_norm_min_clamp_dropout", CONV,
            "N 128, C 3, D 16, H 64, W 64, F 16, K 3, R 3, S 3, O 14, P 62, Q 62",
            odd(CONV3D, "O 3, P 4, Q 5, groups 3", "O 5, P 9, Q 11, groups 2"),
            fills="draws uniform",
            eager="h = torch.group_norm(torch.conv3d(x, w, b), groups, gain, beta);"
            "h = torch.clamp(torch.clamp(h, max=lo), lo, hi);"
            "torch.nn.functional.dropout(h, rate)"),
    Problem("l2_084_linear_batch_norm_scale_softmax", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_085_conv2d_group_norm_scale_max_pool_clamp", CONV,
            "N 128, C 8, H 128, W 128, F 64, R 3, S 3", odd(CONV2D, "groups 3", "groups 2")),
    Problem("l2_086_linear_divide_gelu", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_087_conv2d_subtract_subtract_mish", CONV, "N 128, C 8, H 256, W 256, F 64, R 3, S 3", CONV2D),
    Problem("l2_089_conv_transpose3d_max_pool_softmax_subtract_swish_max", TRANSPOSED,
            "N 128, C 3, D 16, H 32, W 32, F 16, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l2_091_conv_transpose2d_softmax_add_scale_sigmoid", TRANSPOSED,
            "N 128, C 64, H 64, W 64, F 128, R 4, S 4", CONV_TRANSPOSE2D),
    Problem("l2_093_conv_transpose2d_add_min_gelu_multiply", TRANSPOSED,
            "N 128, C 64, H 64, W 64, F 128, R 4, S 4", CONV_TRANSPOSE2D),
    Problem("l2_094_linear_add_hardtanh_mish_group_norm", MATMUL,
            "M 1024, K 8192, N 8192", odd(LINEAR, "groups 3", "groups 2")),
    Problem("l2_096_conv_transpose3d_multiply_max_pool_mean_clamp", TRANSPOSED,
            "N 128, C 3, D 16, H 32, W 32, F 16, K 3, R 3, S 3", CONV_TRANSPOSE3D),
    Problem("l2_097_linear_batch_norm_add_divide_swish", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_099_linear_gelu_softmax", MATMUL, "M 1024, K 8192, N 8192", LINEAR),
    Problem("l2_100_conv_transpose3d_clamp_divide", TRANSPOSED,
            "N 16, C 64, D 24, H 48, W 48, F 128, K 3, R 3, S 3", CONV_TRANSPOSE3D),
)
# fmt: on

BY_SPEC = {problem.spec: problem for problem in PROBLEMS}
