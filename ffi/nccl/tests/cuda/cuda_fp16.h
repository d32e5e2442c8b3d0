/* nccl.h names it, and takes nothing from it. */
