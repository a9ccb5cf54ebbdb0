# SPDX-License-Identifier: Apache-2.0
"""What looks on: it reads what the loop writes down and is never waited for."""
