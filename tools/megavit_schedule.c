/* megavit plan, second part: how the GPU kernel would run the same pictures, and where its time should go. */
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

static void print_budget(const char *title, const mgv_schedule_part *parts, uint32_t count, const char *unit, uint32_t sum,
                         uint32_t limit) {
    printf("%s\n", title);
    for (uint32_t i = 0; i < count; i++)
        printf("  %-28s %4u x %6u = %8u\n", parts[i].name, parts[i].count, parts[i].each, parts[i].count * parts[i].each);
    printf("  %-28s %15s %8u of %u %s\n", "together", "", sum, limit, unit);
}

/* Operations of the same name: those of all layers are one line. */
static int same_line(const mgv_schedule_op *a, const mgv_schedule_op *b) {
    return strcmp(a->label, b->label) == 0 && (a->layer < 0) == (b->layer < 0) && a->tile_columns == b->tile_columns;
}

static mgv_schedule_op sum_line(const mgv_schedule_op *ops, uint32_t count, uint32_t first, uint32_t *times) {
    mgv_schedule_op sum = ops[first];
    *times = 1;
    for (uint32_t i = first + 1; i < count; i++) {
        if (!same_line(&ops[first], &ops[i])) continue;
        sum.tiles += ops[i].tiles;
        sum.waves += ops[i].waves;
        sum.flops += ops[i].flops;
        sum.tile_flops += ops[i].tile_flops;
        sum.l2_bytes += ops[i].l2_bytes;
        sum.memory_bytes += ops[i].memory_bytes;
        sum.plain_l2_bytes += ops[i].plain_l2_bytes;
        sum.plain_memory_bytes += ops[i].plain_memory_bytes;
        sum.matrix_us += ops[i].matrix_us;
        sum.l2_us += ops[i].l2_us;
        sum.memory_us += ops[i].memory_us;
        sum.edge_us += ops[i].edge_us;
        sum.handoff_us += ops[i].handoff_us;
        sum.us += ops[i].us;
        ++*times;
    }
    return sum;
}

static int printed_before(const mgv_schedule_op *ops, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (same_line(&ops[k], &ops[i])) return 1;
    return 0;
}

static void print_tiles(const mgv_schedule_op *ops, uint32_t count) {
    printf("\n%-13s %5s %-9s %9s %7s %8s %8s %10s %6s | %9s %9s | %9s %9s\n", "operation", "times", "kind", "CTA tile", "tiles", "clusters",
           "waves", "GFLOP", "filled", "L2 MB", "unfused", "memory MB", "unfused");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t times;
        char tile[32], filled[16] = "-";
        mgv_schedule_op op;
        if (printed_before(ops, i)) continue;
        op = sum_line(ops, count, i, &times);
        snprintf(tile, sizeof tile, "%ux%u", op.tile_rows, op.tile_columns);
        if (op.tile_flops > 0) snprintf(filled, sizeof filled, "%.0f%%", 100 * op.flops / op.tile_flops);
        printf("%-13s %5u %-9s %9s %7u %8u %8.1f %10.3f %6s | %9.2f %9.2f | %9.2f %9.2f\n", op.label, times, op.kind, tile, op.tiles,
               op.clusters, op.waves, op.flops * 1e-9, filled, (double)op.l2_bytes * 1e-6, (double)op.plain_l2_bytes * 1e-6,
               (double)op.memory_bytes * 1e-6, (double)op.plain_memory_bytes * 1e-6);
    }
}

static void print_times(const mgv_schedule_op *ops, uint32_t count, const mgv_schedule_info *info) {
    printf("\n%-13s %10s %10s %10s %10s %10s | %10s %7s\n", "predicted us", "matrix", "L2", "memory", "tile edges",
           "handoffs", "adds", "share");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t times;
        mgv_schedule_op op;
        if (printed_before(ops, i)) continue;
        op = sum_line(ops, count, i, &times);
        printf("%-13s %10.1f %10.1f %10.1f %10.1f %10.1f | %10.1f %6.1f%%\n", op.label, op.matrix_us, op.l2_us, op.memory_us, op.edge_us,
               op.handoff_us, op.us, 100 * op.us / info->tiles_us);
    }
}

static void print_summary(const mgv_schedule_op *ops, const mgv_schedule_info *info, uint32_t batch, double model_flops) {
    double flops = 0, l2 = 0, memory = 0, plain_l2 = 0, plain_memory = 0;
    int pools = 0;
    for (uint32_t i = 0; i < info->op_count; i++) {
        pools |= strcmp(ops[i].kind, "pool") == 0;
        flops += ops[i].flops;
        l2 += (double)ops[i].l2_bytes;
        memory += (double)ops[i].memory_bytes;
        plain_l2 += (double)ops[i].plain_l2_bytes;
        plain_memory += (double)ops[i].plain_memory_bytes;
    }
    printf("\n%.5g GFLOP of the model's %.5g%s\n", flops * 1e-9, model_flops * 1e-9,
           pools ? ": keys and values of the pooling head are never formed" : "");
    printf("L2 %.2f MB, unfused %.2f; memory %.2f MB, unfused %.2f\n", l2 * 1e-6, plain_l2 * 1e-6, memory * 1e-6, plain_memory * 1e-6);
    printf("bounds: matrix %.1f us, L2 %.1f us, memory %.1f us; %u operations in a chain %.1f us; floor %.1f us\n", info->matrix_us,
           info->l2_us, info->memory_us, (unsigned)(info->chain_us / info->handoff_us + 0.5), info->chain_us, info->floor_us);
    printf("tiles in the order of the list %.1f us; products at %.0f W %.1f us\n", info->tiles_us, info->watts, info->power_us);
    printf("predicted: %.1f us, %.0f pictures a second, %.0f TFLOP/s of the model's FLOPs\n", info->us, batch / info->us * 1e6,
           model_flops / info->us * 1e-6);
    printf("The model: a tile takes the longest of its matrix work (%.0f TFLOP/s in all), its bytes from L2 and its share of those from\n"
           "memory (%.2f TB/s), then its start and end, at %.2f GHz. It begins when its cluster, which takes tiles in turn or, where\n"
           "there are many, as they are dealt, is done with the one before, and %.1f us behind the last tile that writes its rows.\n"
           "\"Adds\" is from the end of all tiles before to the end of the operation's last; the other columns are the operation's by\n"
           "itself. Predicted is all tiles' time at the clock that the card's limit leaves them: products take %.2f pJ a FLOP where\n"
           "that was measured, and energy goes with the square of the clock.\n",
           info->matrix_flops * 1e-12, info->memory_bandwidth * 1e-12, info->clock_hz * 1e-9, info->handoff_us,
           info->joules_a_flop * 1e12);
    if (info->tensor_count)
        printf("There are two accumulators: products of the next tile of a kind run beside a tile's end, but for %.0f%% of that and\n"
               "%.0f clocks.\n", 100 * (1 - info->beside_share), info->gap_clocks);
}

/* What clusters of how many CTAs would give, by count: of the largest product's tile, for 128 bytes of K, whose rows and scales are a CTA's
   own and whose weights come to the cluster once. Multiprocessors that such clusters find: StuartSul/gpu-experiments@4cb7ade, on a B200. */
enum { CLUSTER_SIZES = 4, COUNTED_ON = 148 };
static const uint32_t cluster_sizes[CLUSTER_SIZES] = {1, 2, 4, 16}, cluster_finds[CLUSTER_SIZES] = {148, 148, 132, 112};

static const mgv_schedule_op *largest_product(const mgv_schedule_op *ops, uint32_t count) {
    const mgv_schedule_op *largest = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(ops[i].kind, "product") == 0 && (!largest || ops[i].flops > largest->flops)) largest = &ops[i];
    return largest;
}
static void print_clusters(const mgv_schedule_op *ops, const mgv_schedule_info *info, int mx) {
    const mgv_schedule_op *op = largest_product(ops, info->op_count);
    const double all_clocks = info->multiprocessors * info->clock_hz, l2 = info->l2_bandwidth / all_clocks;
    double of_tile, bytes[CLUSTER_SIZES], clocks[CLUSTER_SIZES], at_once[CLUSTER_SIZES], of_two = 1;
    uint32_t sms[CLUSTER_SIZES];
    if (!op) return;
    of_tile = 128.0 * op->tile_rows * op->tile_columns / (info->matrix_flops / all_clocks);
    for (int i = 0; i < CLUSTER_SIZES; i++) {
        const uint32_t scales = mx ? 512 * (1 + (op->tile_columns + 127) / 128) : 0;
        sms[i] = info->multiprocessors * cluster_finds[i] / COUNTED_ON;
        bytes[i] = 128.0 * op->tile_rows + scales + 128.0 * op->tile_columns / cluster_sizes[i];
        clocks[i] = bytes[i] / l2 > of_tile ? bytes[i] / l2 : of_tile;
        at_once[i] = sms[i] / clocks[i];
        if (cluster_sizes[i] == 2) of_two = at_once[i];
    }
    printf("\nclusters of CTAs, by count: tiles of %s, %ux%u, %.0f clocks of products for 128 bytes of K, L2 at %.0f bytes a clock\n"
           "%4s %16s %15s %10s %8s %15s\n", op->label, op->tile_rows, op->tile_columns, of_tile, l2, "CTAs", "multiprocessors",
           "bytes a clock", "TB/s", "clocks", "tiles, to of 2");
    for (int i = 0; i < CLUSTER_SIZES; i++)
        printf("%4u %16u %15.0f %10.1f %8.0f %15.2f\n", cluster_sizes[i], sms[i], bytes[i] / of_tile,
               bytes[i] / of_tile * sms[i] * info->clock_hz * 1e-12, clocks[i], at_once[i] / of_two);
}

int cli_check_schedule(const mgv_model *model, const char *name, const mgv_schedule_desc *desc, int required) {
    mgv_schedule_info info;
    mgv_error error;
    mgv_result result = mgv_model_get_schedule(model, desc, &info, NULL, 0, &error);
    if (result == MGV_OK || (result != MGV_ERROR_ARGUMENT && !required)) return CLI_DONE;
    return cli_fail_library(name, result, &error);
}

int cli_print_schedule(const mgv_model *model, const char *name, const mgv_schedule_desc *desc, double model_flops) {
    mgv_schedule_info info;
    mgv_model_info about;
    mgv_schedule_op *ops;
    mgv_error error;
    mgv_result result = mgv_model_get_schedule(model, desc, &info, NULL, 0, &error);
    mgv_model_get_info(model, &about);
    if (result != MGV_OK) {
        printf("\nno GPU schedule: %s\n", error.message);
        return CLI_DONE;
    }
    ops = malloc(info.op_count * sizeof *ops);
    if (!ops) return cli_fail(CLI_MACHINE, NULL, "out of memory for %u operations", info.op_count);
    result = mgv_model_get_schedule(model, desc, &info, ops, info.op_count, &error);
    if (result == MGV_OK) {
        const char *precision = desc->architecture ? strchr(desc->architecture, ' ') : NULL;
        printf("\nGPU schedule (%s, %s%s), %s regime: %u multiprocessors in %u clusters of %u,\n"
               "%u group%s of up to %u %s, %u tiles, %.2f MB of packed weights, %.2f MB on the card,\n"
               "kernel %s\n\n",
               info.machine, precision ? precision + 1 : "bf16",
               info.untried ? "; predicted from data sheets: the kernel has run on a model of the machine and on no card" : "",
               info.regime, info.multiprocessors, info.clusters, info.cluster_size, info.groups, info.groups == 1 ? "" : "s",
               info.group_images, about.image_size ? "pictures" : "tokens", info.tiles,
               (double)info.weight_bytes * 1e-6, (double)info.device_bytes * 1e-6,
               info.kernel);
        print_budget("shared memory of a multiprocessor", info.shared, info.shared_count, "bytes", info.shared_bytes,
                     info.shared_limit);
        print_budget("registers, threads x each", info.roles, info.role_count, "", info.registers, info.register_limit);
        if (info.tensor_count)
            print_budget("columns of tensor memory", info.tensor, info.tensor_count, "", info.tensor_columns, info.tensor_limit);
        print_tiles(ops, info.op_count);
        print_times(ops, info.op_count, &info);
        print_summary(ops, &info, desc->image_count, model_flops);
        if (info.pairs_us > 0)
            printf("One operation after the other: %.0f us with products of single CTAs, %.0f us with products and attention of pairs;\n"
                   "pairs are taken where they gain a twelfth.\n", info.singles_us, info.pairs_us);
        else if (info.tensor_count)
            printf("There are no products of pairs for this model: their pooling head takes up to 208 tokens, or more than 256.\n");
        if (info.tensor_count) print_clusters(ops, &info, precision != NULL);
    }
    free(ops);
    return result == MGV_OK ? CLI_DONE : cli_fail_library(name, result, &error);
}

int cli_print_decode_schedule(const mgv_model *model, const char *name, const mgv_decode_desc *desc) {
    enum { STEPS = 16 };
    mgv_decode_info info;
    mgv_decode_step steps[STEPS];
    mgv_error error;
    mgv_result result = mgv_model_get_decode_schedule(model, desc, &info, steps, STEPS, &error);
    if (result != MGV_OK) return cli_fail_library(name, result, &error);
    printf("GPU schedule of texts (Hopper, bf16): %u session%s at position %u, %u multiprocessors, up to %u ids of each in one launch,\n"
           "%.2f MB of weights and %.2f MB of keys and values read for an id of each, kernel %s\n\n",
           info.sessions, info.sessions == 1 ? "" : "s", desc->position, info.multiprocessors, info.launch_ids,
           (double)info.weight_bytes * 1e-6, (double)info.cache_bytes * 1e-6, info.kernel);
    printf("%-12s %6s %7s %8s %11s %9s %10s %8s %8s %8s\n", "step", "times", "units", "busiest", "weights MB", "cache MB", "stream us",
           "wait us", "us", "in all");
    for (uint32_t i = 0; i < info.step_count && i < STEPS; i++) {
        const mgv_decode_step *s = &steps[i];
        printf("%-12s %6u %7u %8u %11.3f %9.3f %10.2f %8.2f %8.2f %8.1f\n", s->label, s->times, s->units, s->busiest,
               (double)s->weight_bytes * 1e-6, (double)s->cache_bytes * 1e-6, s->stream_us, s->wait_us, s->us, s->us * s->times);
    }
    printf("\npredicted: %.0f us for an id of each session, %.0f ids a second in sum; memory alone: %.0f us, %.0f ids a second\n", info.us,
           info.ids_per_second, info.floor_us, info.sessions * 1e6 / info.floor_us);
    printf("Assumed: %.2f TB/s from memory, %.1f us from one product to the next, %.1f MB of weights asked for ahead. A product takes its\n"
           "bytes at that rate, or the wait and then what was not asked for ahead, whichever is longer; and more where registers do not\n"
           "hold its rows.\n",
           info.bandwidth * 1e-12, info.handoff_us, (double)info.ring_bytes * 1e-6);
    return CLI_DONE;
}
