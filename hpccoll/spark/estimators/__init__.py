# SPDX-License-Identifier: Apache-2.0
"""Estimators of Spark ML, for any framework: parameters, rows, checkpoints, models."""
