# The test programs that also run as WebAssembly: those of the kernels, and what shows that files, layers and models work
# there. The share of cases keeps each below a few seconds in node: FOLDER/NAME:SAMPLE.
set(wasm_programs
  core/context:1
  attention/attention_hidden:40 attention/attention_huge:20 attention/attention_padding:40 attention/attention_pairs:40
  attention/attention_paths:40 attention/attention_random:40 attention/attention_sizes:40 attention/backward:40
  attention/backward_exact:40 attention/extremes:20 attention/rotary:20 attention/stats:40
  cpu/kernels:20 cpu/kernels_rows:20 cpu/matmul:40
  layer/layer:40 layer/layer_cache:40 layer/layer_intermediates:20
  ops/ops_activation:20 ops/ops_dropout:20 ops/ops_embedding:20 ops/ops_loss:20 ops/ops_norm:20)
