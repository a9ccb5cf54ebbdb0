# SPDX-License-Identifier: Apache-2.0
"""One module per launcher or scheduler; hpccoll.detect.search finds them and describes their functions."""
