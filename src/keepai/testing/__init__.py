"""What tests of workflows and of Keep itself need: a clock to move, a world to break, places to crash."""

from .crash import CrashAt, Crashed, install_from_env, kill_self_at
from .manual_clock import ManualClock
from .world import Effect, World

__all__ = ["CrashAt", "Crashed", "Effect", "ManualClock", "World", "install_from_env", "kill_self_at"]
