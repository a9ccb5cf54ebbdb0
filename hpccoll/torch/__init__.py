# SPDX-License-Identifier: Apache-2.0
"""hpccoll for PyTorch."""
