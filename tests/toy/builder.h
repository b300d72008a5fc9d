/* Toy: what Vaswani et al. 2017 (arXiv 1706.03762) have and no published family here: norms behind the residual (3.1) and ReLU (3.3). Its
   class token is the pooled row. */
static const mgv__layer_kind mgv__toy_layer = {
    "layers.%u.", {"norm1", "norm2"}, "q", "k", "v", "out", NULL, "up", "down", {NULL, NULL}, 1, MGV__LAYER_POST_NORM,
};
static void mgv__build_toy(mgv__builder *b) {
    const mgv__config *c = b->config;
    uint16_t patches = mgv__add_patches(b);
    mgv__layer_buffers buffers = mgv__add_layer_buffers(b);
    uint16_t embedded = mgv__add_buffer(b, "embedded", MGV__ROWS_PATCHES, c->hidden);
    uint32_t table;
    mgv__op *op;
    mgv__find_prefix(b, "class");
    mgv__enter(b, -1, "");
    op = mgv__push_patch_embed(b, patches, embedded, "patches", 0, 1);
    op->table = table = mgv__bind_matrix(b, "positions", mgv__table_entries(c), c->hidden);
    op = mgv__push(b, MGV__OP_PREPEND, "class token", embedded, buffers.stream);
    op->part_count = 1;
    op->weight[0] = mgv__bind_vector(b, "class", c->hidden);
    op->table = table;
    mgv__push_tap(b, MGV_OUTPUT_LAYER, 0);
    mgv__build_layers(b, &mgv__toy_layer, &buffers);
    mgv__push_tap(b, MGV_OUTPUT_TOKENS, 0);
    mgv__push_pick(b, buffers.stream);
    mgv__push_tap(b, MGV_OUTPUT_POOLED, 0);
}

/* The same with ordinary layers and Qwen3-VL's mergers, for pictures of one size. */
static const mgv__layer_kind mgv__toy_merged_layer = {
    "layers.%u.", {"norm1", "norm2"}, "q", "k", "v", "out", NULL, "up", "down", {NULL, NULL}, 1, 0,
};
static void mgv__build_toy_merged(mgv__builder *b) {
    const mgv__config *c = b->config;
    mgv__qwen_buffers buffers;
    uint16_t normed, deepstack;
    uint32_t layer, next = 0;
    mgv__op *op;
    buffers.patches = mgv__add_patches(b);
    buffers.layer = mgv__add_layer_buffers(b);
    buffers.merge_mlp = mgv__add_buffer(b, "merge mlp", MGV__ROWS_MERGED, c->hidden * c->merge * c->merge);
    buffers.tokens = mgv__add_buffer(b, "tokens", MGV__ROWS_MERGED, c->out_hidden);
    normed = mgv__add_buffer(b, "merge normed", MGV__ROWS_MERGED, c->hidden * c->merge * c->merge);
    deepstack = mgv__add_buffer(b, "deepstack", MGV__ROWS_MERGED, c->out_hidden);
    mgv__find_prefix(b, "positions");
    mgv__enter(b, -1, "");
    op = mgv__push_patch_embed(b, buffers.patches, buffers.layer.stream, "patches", 0, 1);
    op->table = mgv__bind_matrix(b, "positions", mgv__table_entries(c), c->hidden);
    mgv__push_tap(b, MGV_OUTPUT_LAYER, 0);
    for (layer = 0; layer < c->layers; layer++) {
        mgv__build_layer(b, &mgv__toy_merged_layer, &buffers.layer, layer, MGV__RANGE_FRAME);
        if (next < c->deepstack_count && c->deepstack[next] == layer) mgv__build_qwen3_deepstack(b, &buffers, next++, normed, deepstack);
    }
    mgv__enter(b, -1, "merger.");
    mgv__push_norm(b, "merge norm", buffers.layer.stream, buffers.layer.normed, "norm.weight", "norm.bias", c->epsilon);
    mgv__push_merge_mlp(b, &buffers, buffers.layer.normed, buffers.tokens, mgv__qwen3_merger_names);
    mgv__push_tap(b, MGV_OUTPUT_TOKENS, 0);
}

