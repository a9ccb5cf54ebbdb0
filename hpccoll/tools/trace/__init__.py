# SPDX-License-Identifier: Apache-2.0
"""`hpccoll trace`: explains from the ranks' last events which rank diverged, and which rank waits for which."""
