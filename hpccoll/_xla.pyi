# SPDX-License-Identifier: Apache-2.0
handler: object
SEND: int
RECEIVE: int
SENDRECV: int
nothing: object
