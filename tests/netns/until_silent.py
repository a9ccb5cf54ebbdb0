# SPDX-License-Identifier: Apache-2.0
"""Runs this Python with arguments, and prints its output and that of its descendants until the last one has ended."""

import subprocess
import sys

done = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
sys.stdout.buffer.write(done.stdout)
sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
