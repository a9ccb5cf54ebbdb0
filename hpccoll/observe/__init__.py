# SPDX-License-Identifier: Apache-2.0
"""Observers of a World: they read the loop's trace, and the loop never waits for them."""
