"""explorers: schedules to touch, one file each. base.py has what they share; pictures come from plot/."""
from .opening import explore as explore
from .schedule import schedule_explorer as schedule_explorer
from .stepper import derivation_stepper as derivation_stepper
from .tuner import block_tuner as block_tuner
