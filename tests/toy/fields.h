static const mgv__field mgv__toy_merged_fields[] = {
    {"image_size", mgv__read_side, offsetof(mgv__config, image_size), 1, 16384},
    {"spatial_merge_size", mgv__read_integer, offsetof(mgv__config, merge), 1, 64},
    {"out_hidden_size", mgv__read_integer, offsetof(mgv__config, out_hidden), 1, 65536},
    {"deepstack_visual_indexes", mgv__read_deepstack, 0, 0, 511},
};
