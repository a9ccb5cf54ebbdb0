# SPDX-License-Identifier: Apache-2.0
"""What front ends for frameworks share. Nothing in this package imports a framework or names one."""
