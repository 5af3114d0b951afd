"""What NVML knows of the machine. Only its enumerations are available in this version of cuirass."""
