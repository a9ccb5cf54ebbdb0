# SPDX-License-Identifier: Apache-2.0
"""One module a launcher or scheduler; hpccoll.detect.search says what it has, and finds it."""
