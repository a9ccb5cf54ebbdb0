# SPDX-License-Identifier: Apache-2.0
"""`hpccoll trace`: what the last events of the ranks of a job say about who diverged, and who waits for whom."""
