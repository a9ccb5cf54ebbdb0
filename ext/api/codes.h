/* SPDX-License-Identifier: Apache-2.0
 *
 * codes.h - texts of statuses, and the last error of a thread.
 */
#pragma once

#define HC__ERROR_BYTES 2048
/* Sets the text as this thread's last error (NULL or "": the text of the status). Returns the status. "Error set" below
 * means that the function has called it. */
int hc__error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
