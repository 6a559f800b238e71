"""`python -I -S -E agentd/shim/__main__.py TASKDIR`: supervises one task of the process runtime.

Only this file is compiled at each start, so it does nothing but find the rest. The tree goes to the end of the path: a
module of the tree must never shadow one of the standard library.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from agentd.shim.life import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
