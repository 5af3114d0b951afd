digraph dot {
  "0x4a0004000080" [label="KERNEL"];
}
