"""MLIR's emitters of fusions on CPUs, which jaxlib 0.10 can do without.

Later ones always have them, and know no flag of that name.
"""

from importlib import metadata

HAS_FLAG = metadata.version('jaxlib').startswith('0.10.')
# Options that switch them on, as users have them.
AS_USERS = {'xla_cpu_use_fusion_emitters': True} if HAS_FLAG else None
