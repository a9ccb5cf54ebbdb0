# SPDX-License-Identifier: Apache-2.0
"""The commands of `hpccoll`, one package or module per command; nothing that a program imports needs them."""
