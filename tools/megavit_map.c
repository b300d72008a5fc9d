/* megavit map: which patches of a picture answer a text, over the picture; or the first three components of the patches as colours. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"
#include "tools/stb.h"

enum {
    PANEL = 560,   /* pixels of a panel's longer side */
    LEAST = 40,    /* of its shorter side, whatever the picture is like */
    MARGIN = 20, LINE = 28, BAR = 18,
    LETTER = 2,    /* pixels of a letter's unit */
    COMPONENTS = 3, ITERATIONS = 100
};

typedef struct map_options {
    cli_session_options session;
    const char *text, *output;
    int pca, alone;
} map_options;

/* What is known of a picture's patches: `values` numbers for each, which are what is drawn. */
typedef struct patches {
    uint32_t across, down;
    float *values;                /* [down * across]: cosines, or what they lose; or colours [down * across, 3] from 0 to 1 */
    double least, most;           /* between which they are drawn */
    double whole, probability;    /* of the whole picture and the text; probability below 0: the model gives none */
    double share[COMPONENTS];     /* of the variance */
} patches;

/* ---- drawing ---- */

typedef struct canvas {
    unsigned char *pixels; /* RGB */
    uint32_t width, height;
} canvas;
typedef struct pen {
    canvas *on;
    uint32_t left, top;
} pen;
typedef struct rectangle {
    uint32_t left, top, width, height;
} rectangle;

static void fill(canvas *to, rectangle r, const unsigned char colour[3]) {
    for (uint32_t y = r.top; y < r.top + r.height && y < to->height; y++)
        for (uint32_t x = r.left; x < r.left + r.width && x < to->width; x++)
            memcpy(to->pixels + ((size_t)y * to->width + x) * 3, colour, 3);
}

static void fill_letter(void *user, float left, float top, float right, float bottom) {
    static const unsigned char ink[3] = {25, 25, 25};
    const pen *p = user;
    const rectangle r = {p->left + (uint32_t)(left * LETTER), p->top + (uint32_t)(top * LETTER), (uint32_t)((right - left) * LETTER),
                         (uint32_t)((bottom - top) * LETTER)};
    fill(p->on, r, ink);
}

static uint32_t text_width(const char *text) { return (uint32_t)stb_text(text, NULL, NULL) * LETTER; }

/* One line, cut with dots where it is wider than that; the font has ASCII only. */
static void write_text(canvas *to, const char *text, uint32_t left, uint32_t top, uint32_t most) {
    pen p = {to, left, top};
    char line[512];
    size_t length = 0;
    for (; *text && length + 1 < sizeof line; text++) {
        if (((unsigned char)*text & 0xC0) == 0x80) continue; /* the rest of a code point */
        line[length++] = *text >= ' ' && *text <= '~' ? *text : '?';
    }
    line[length] = 0;
    while (length > 3 && text_width(line) > most) {
        line[--length] = 0;
        memset(line + length - 3, '.', 3);
    }
    stb_text(line, fill_letter, &p);
}

/* matplotlib's viridis, from the least to the most; and for what has a middle, blue by way of grey to orange: every eye tells them apart. */
static const unsigned char viridis[9][3] = {{68, 1, 84},    {71, 44, 122}, {59, 81, 139},  {44, 113, 142}, {33, 144, 141},
                                            {39, 173, 129}, {92, 200, 99}, {170, 220, 50}, {253, 231, 37}};
static const unsigned char two_sided[9][3] = {{5, 48, 97},     {33, 102, 172}, {67, 147, 195}, {146, 197, 222}, {210, 210, 210},
                                              {253, 200, 120}, {253, 150, 50}, {235, 95, 10},  {170, 40, 0}};
static void heat_colour(const map_options *o, double value, unsigned char colour[3]) {
    const unsigned char(*table)[3] = o->alone ? viridis : two_sided;
    const double place = (value < 0 ? 0 : value > 1 ? 1 : value) * 8;
    const int i = place < 8 ? (int)place : 7;
    for (int c = 0; c < 3; c++) colour[c] = (unsigned char)(table[i][c] + (place - i) * (table[i + 1][c] - table[i][c]) + 0.5);
}

/* A pixel of a decoded picture as RGB, transparent parts white unless alpha is dropped. */
static void pixel_at(const mgv_image *image, uint32_t x, uint32_t y, double rgb[3]) {
    const mgv_pixel_format format = image->format;
    const uint32_t channels = format == MGV_PIXELS_GRAY8 ? 1 : format == MGV_PIXELS_GRAY_ALPHA8 ? 2 : format == MGV_PIXELS_RGB8 ? 3 : 4;
    const unsigned char *p = (const unsigned char *)image->pixels + ((size_t)y * image->width + x) * channels;
    const double alpha = channels % 2 == 0 && image->alpha == MGV_ALPHA_WHITE ? p[channels - 1] / 255.0 : 1;
    for (int c = 0; c < 3; c++) rgb[c] = (channels < 3 ? p[0] : p[c]) * alpha + 255 * (1 - alpha);
}

/* The mean of the picture's pixels under one of the panel's; black outside. from, to: left, top, right, bottom. */
static void sample_picture(const mgv_image *image, const double from[4], double rgb[3]) {
    const int64_t left = (int64_t)floor(from[0]), top = (int64_t)floor(from[1]);
    int64_t right = (int64_t)ceil(from[2]), bottom = (int64_t)ceil(from[3]);
    double one[3];
    uint32_t count = 0;
    rgb[0] = rgb[1] = rgb[2] = 0;
    if (right <= left) right = left + 1;
    if (bottom <= top) bottom = top + 1;
    for (int64_t y = top; y < bottom; y += 1 + (bottom - top) / 8) /* 64 of them are enough */
        for (int64_t x = left; x < right; x += 1 + (right - left) / 8) {
            count++;
            if (x < 0 || y < 0 || x >= image->width || y >= image->height) continue;
            pixel_at(image, (uint32_t)x, (uint32_t)y, one);
            for (int c = 0; c < 3; c++) rgb[c] += one[c];
        }
    for (int c = 0; c < 3; c++) rgb[c] /= count;
}

/* Value `which` of `each` between the middles of patches; x and y from 0 to 1. */
static double value_at(const patches *p, uint32_t each, uint32_t which, double x, double y) {
    const double across = x * p->across - 0.5, down = y * p->down - 0.5;
    const double left = across < 0 ? 0 : across > p->across - 1.0 ? p->across - 1.0 : across;
    const double top = down < 0 ? 0 : down > p->down - 1.0 ? p->down - 1.0 : down;
    const uint32_t i = (uint32_t)left, k = (uint32_t)top, i1 = i + 1 < p->across ? i + 1 : i, k1 = k + 1 < p->down ? k + 1 : k;
    const double u = left - i, v = top - k;
#define VALUE(row, column) (double)p->values[((size_t)(row) * p->across + (column)) * each + which]
    return (1 - v) * ((1 - u) * VALUE(k, i) + u * VALUE(k, i1)) + v * ((1 - u) * VALUE(k1, i) + u * VALUE(k1, i1));
#undef VALUE
}

/* The picture in one panel, and what is known of its patches in the other. */
static void draw_panels(canvas *to, const map_options *o, const mgv_image *image, const double region[4], const patches *p,
                        const rectangle panel[2]) {
    const double step_x = region[2] / panel[0].width, step_y = region[3] / panel[0].height;
    for (uint32_t y = 0; y < panel[0].height; y++)
        for (uint32_t x = 0; x < panel[0].width; x++) {
            const double left = region[0] + x * step_x, top = region[1] + y * step_y, from[4] = {left, top, left + step_x, top + step_y};
            const double u = (x + 0.5) / panel[0].width, v = (y + 0.5) / panel[0].height;
            unsigned char *plain = to->pixels + ((size_t)(panel[0].top + y) * to->width + panel[0].left + x) * 3;
            unsigned char *drawn = to->pixels + ((size_t)(panel[1].top + y) * to->width + panel[1].left + x) * 3, colour[3];
            double rgb[3], grey, value, share;
            sample_picture(image, from, rgb);
            grey = 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2];
            value = o->pca || p->most <= p->least ? 0.5 : (value_at(p, 1, 0, u, v) - p->least) / (p->most - p->least);
            if (!o->pca) heat_colour(o, value, colour);
            share = o->alone ? 0.7 : 0.1 + 0.8 * sqrt(fabs(2 * value - 1)); /* what is neither for nor against stays the picture */
            for (int c = 0; c < 3; c++) {
                plain[c] = (unsigned char)(rgb[c] + 0.5);
                if (o->pca) drawn[c] = (unsigned char)(255 * value_at(p, 3, (uint32_t)c, u, v) + 0.5);
                else drawn[c] = (unsigned char)((1 - share) * grey + share * colour[c] + 0.5);
            }
        }
}

static void draw_heat_legend(canvas *to, const map_options *o, const patches *p, rectangle under) {
    const char *const what = o->alone ? "cosine of patch and text" : "against  0  for the text";
    const uint32_t line_top = under.top + BAR + 8;
    char low[32], high[32], line[128];
    for (uint32_t x = 0; x < under.width; x++) {
        const rectangle strip = {under.left + x, under.top, 1, BAR};
        unsigned char colour[3];
        heat_colour(o, (double)x / under.width, colour);
        fill(to, strip, colour);
    }
    snprintf(low, sizeof low, "%.2g", p->least);
    snprintf(high, sizeof high, "%.2g", p->most);
    write_text(to, low, under.left, line_top, under.width);
    write_text(to, high, under.left + under.width - text_width(high), line_top, under.width);
    if (under.width > text_width(what) + 2 * text_width("-0.000 "))
        write_text(to, what, under.left + (under.width - text_width(what)) / 2, line_top, under.width);
    if (p->probability >= 0) snprintf(line, sizeof line, "cosine %.3f, probability %.3f", p->whole, p->probability);
    else snprintf(line, sizeof line, "cosine of picture and text %.3f", p->whole);
    write_text(to, line, MARGIN, under.top + 3, under.left - 2 * MARGIN);
}

static void draw_component_legend(canvas *to, const patches *p, rectangle under) {
    static const char *const names[COMPONENTS] = {"1st", "2nd", "3rd"};
    char line[96];
    for (int i = 0; i < COMPONENTS; i++) {
        const rectangle square = {MARGIN, under.top + (uint32_t)i * LINE, BAR, BAR};
        unsigned char colour[3] = {40, 40, 40};
        colour[i] = 235;
        fill(to, square, colour);
        snprintf(line, sizeof line, "%s component of the patches: %.0f %% of their variance", names[i], 100 * p->share[i]);
        write_text(to, line, MARGIN + BAR + 10, square.top + 3, to->width - 2 * MARGIN - BAR - 10);
    }
}

static int write_canvas(const map_options *o, const canvas *from) {
    size_t length = 0;
    unsigned char *file = stb_png_write(from->pixels, from->width, from->height, &length);
    cli_file *output = file ? cli_file_create(o->output) : NULL;
    int status = file ? CLI_BAD_FILE : cli_fail(CLI_MACHINE, NULL, "out of memory for a picture");
    if (output) {
        fwrite(file, 1, length, cli_file_stream(output)); /* a failure shows when it is committed */
        status = cli_file_commit(output);
    }
    free(file);
    return status;
}

static int draw(const map_options *o, const cli_picture *picture, const double region[4], const patches *p) {
    const double longer = region[2] > region[3] ? region[2] : region[3];
    const uint32_t width = (uint32_t)fmax(LEAST, PANEL * region[2] / longer), height = (uint32_t)fmax(LEAST, PANEL * region[3] / longer);
    const uint32_t wide = 3 * MARGIN + 2 * width > PANEL + 2 * MARGIN ? 3 * MARGIN + 2 * width : PANEL + 2 * MARGIN;
    const rectangle panel[2] = {{MARGIN, MARGIN + LINE, width, height}, {2 * MARGIN + width, MARGIN + LINE, width, height}};
    const rectangle under = {panel[1].left, panel[1].top + height + MARGIN, wide - MARGIN - panel[1].left, 0};
    canvas to = {NULL, wide, under.top + (o->pca ? 3u : 2u) * LINE + MARGIN};
    const char *slash = strrchr(picture->name, '/');
    char title[512];
    int status;
    to.pixels = malloc((size_t)to.width * to.height * 3);
    if (!to.pixels) return cli_fail(CLI_MACHINE, NULL, "out of memory for a picture");
    memset(to.pixels, 255, (size_t)to.width * to.height * 3);
    if (o->pca) snprintf(title, sizeof title, "components as colours");
    else snprintf(title, sizeof title, "\"%s\"", o->text);
    write_text(&to, slash ? slash + 1 : picture->name, panel[0].left, MARGIN, width);
    write_text(&to, title, panel[1].left, MARGIN, to.width - MARGIN - panel[1].left);
    draw_panels(&to, o, &picture->image, region, p, panel);
    if (o->pca) draw_component_legend(&to, p, under);
    else draw_heat_legend(&to, o, p, under);
    status = write_canvas(o, &to);
    free(to.pixels);
    return status;
}

/* ---- components ---- */

static int compare_floats(const void *a, const void *b) {
    const float first = *(const float *)a, second = *(const float *)b;
    return (first > second) - (first < second);
}

static void subtract_mean(float *rows, uint32_t count, uint32_t width) {
    for (uint32_t k = 0; k < width; k++) {
        double sum = 0;
        for (uint32_t i = 0; i < count; i++) sum += (double)rows[(size_t)i * width + k];
        for (uint32_t i = 0; i < count; i++) rows[(size_t)i * width + k] -= (float)(sum / count);
    }
}

/* Takes out of axis `which` what lies along those before it, and makes it one long. Returns how long it was. */
static double make_orthogonal(double *axes, uint32_t which, uint32_t width) {
    double *axis = axes + (size_t)which * width, square = 0;
    for (uint32_t before = 0; before < which; before++) {
        double along = 0;
        for (uint32_t k = 0; k < width; k++) along += axis[k] * axes[(size_t)before * width + k];
        for (uint32_t k = 0; k < width; k++) axis[k] -= along * axes[(size_t)before * width + k];
    }
    for (uint32_t k = 0; k < width; k++) square += axis[k] * axis[k];
    for (uint32_t k = 0; k < width; k++) axis[k] = square > 0 ? axis[k] / sqrt(square) : 0;
    return sqrt(square);
}

/* Eigenvectors of the covariance by orthogonal iteration. rows: of mean 0; length: eigenvalues times count. next: room for one axis. */
static void find_components(const float *rows, uint32_t count, uint32_t width, double *axes, double *next, double length[COMPONENTS]) {
    for (uint32_t i = 0; i < COMPONENTS * width; i++) axes[i] = (double)(i * 2654435761u % 1000003u) / 1000003 - 0.5;
    for (uint32_t which = 0; which < COMPONENTS; which++) make_orthogonal(axes, which, width);
    for (int step = 0; step < ITERATIONS; step++)
        for (uint32_t which = 0; which < COMPONENTS; which++) {
            double *axis = axes + (size_t)which * width;
            memset(next, 0, width * sizeof *next);
            for (uint32_t i = 0; i < count; i++) {
                const float *row = rows + (size_t)i * width;
                double along = 0;
                for (uint32_t k = 0; k < width; k++) along += axis[k] * (double)row[k];
                for (uint32_t k = 0; k < width; k++) next[k] += along * (double)row[k];
            }
            memcpy(axis, next, width * sizeof *next);
            length[which] = make_orthogonal(axes, which, width);
        }
}

/* Colours of the rows: each component from its 2nd to its 98th percentile, so that a few patches do not take all the contrast. An axis has
   no sign of its own: the side on which fewer patches lie farther off becomes bright. */
static void colour_rows(patches *p, const float *rows, uint32_t width, const double *axes, float *sorted) {
    const uint32_t count = p->across * p->down;
    for (uint32_t c = 0; c < COMPONENTS; c++) {
        double skew = 0;
        float low, high;
        for (uint32_t i = 0; i < count; i++) {
            double along = 0;
            for (uint32_t k = 0; k < width; k++) along += axes[(size_t)c * width + k] * (double)rows[(size_t)i * width + k];
            sorted[i] = (float)along;
            skew += along * along * along;
        }
        for (uint32_t i = 0; i < count; i++) p->values[(size_t)i * 3 + c] = skew < 0 ? -sorted[i] : sorted[i];
        for (uint32_t i = 0; i < count; i++) sorted[i] = p->values[(size_t)i * 3 + c];
        qsort(sorted, count, sizeof *sorted, compare_floats);
        low = sorted[count / 50];
        high = sorted[count - 1 - count / 50];
        for (uint32_t i = 0; i < count; i++) {
            const float value = high > low ? (p->values[(size_t)i * 3 + c] - low) / (high - low) : 0.5f;
            p->values[(size_t)i * 3 + c] = value < 0 ? 0 : value > 1 ? 1 : value;
        }
    }
}

static int take_components(patches *p, float *rows, uint32_t width) {
    const uint32_t count = p->across * p->down;
    double *axes = malloc((COMPONENTS + 1) * (size_t)width * sizeof *axes), length[COMPONENTS], total = 0;
    float *sorted = malloc(count * sizeof *sorted);
    int status = 0;
    p->values = malloc((size_t)count * 3 * sizeof *p->values);
    if (axes && sorted && p->values) {
        subtract_mean(rows, count, width);
        for (size_t i = 0; i < (size_t)count * width; i++) total += (double)rows[i] * (double)rows[i];
        find_components(rows, count, width, axes, axes + COMPONENTS * (size_t)width, length);
        for (int i = 0; i < COMPONENTS; i++) p->share[i] = total > 0 ? length[i] / total : 0;
        colour_rows(p, rows, width, axes, sorted);
    } else {
        status = cli_fail(CLI_MACHINE, NULL, "out of memory for %u patches", count);
    }
    free(axes);
    free(sorted);
    return status;
}

/* ---- cosines ---- */

static double cosine_of(const float *a, const float *b, uint32_t width) {
    double product = 0, square_a = 0, square_b = 0;
    for (uint32_t i = 0; i < width; i++) {
        product += (double)a[i] * (double)b[i];
        square_a += (double)a[i] * (double)a[i];
        square_b += (double)b[i] * (double)b[i];
    }
    return square_a * square_b > 0 ? product / sqrt(square_a * square_b) : 0;
}

/* embeds: of patches alone; or of pictures without one patch each, and behind them of the whole one. */
static void take_cosines(patches *p, const map_options *o, const float *embeds, const float *text, uint32_t width) {
    const uint32_t count = p->across * p->down;
    const double whole = o->alone ? 0 : cosine_of(embeds + (size_t)count * width, text, width);
    for (uint32_t i = 0; i < count; i++) {
        const double cosine = cosine_of(embeds + (size_t)i * width, text, width), value = o->alone ? cosine : whole - cosine;
        p->values[i] = (float)value;
        if (i == 0 || value < p->least) p->least = value;
        if (i == 0 || value > p->most) p->most = value;
    }
    if (o->alone) return;
    if (p->most < -p->least) p->most = -p->least; /* nothing lies in the middle */
    p->least = -p->most;
}

/* ---- encoding ---- */

/* The rows of an output of one picture, to be freed; NULL after saying why. */
static float *encode(cli_session *session, const cli_picture *picture, mgv_output *output, mgv_shape *shape, int *status) {
    mgv_engine *engine = cli_session_engine(session);
    mgv_encode_desc desc = {0};
    mgv_error error;
    mgv_result result = mgv_engine_shape(engine, &picture->image, 1, output, shape, &error);
    if (result == MGV_OK) {
        output->capacity = shape->rows * shape->columns;
        output->data = output->capacity <= SIZE_MAX / sizeof(float) ? malloc((size_t)output->capacity * sizeof(float)) : NULL;
        if (!output->data) {
            *status = cli_fail(CLI_MACHINE, NULL, "out of memory for %llu patches", (unsigned long long)shape->rows);
            return NULL;
        }
        desc.images = &picture->image;
        desc.image_count = 1;
        desc.outputs = output;
        desc.output_count = 1;
        result = mgv_encode_blocking(engine, &desc, &error);
    }
    if (result == MGV_OK) return output->data;
    *status = cli_fail_library(picture->name, result, &error);
    free(output->data);
    return NULL;
}

/* rows: `before` of class tokens, then those of the patches. */
static int map_text(const map_options *o, cli_session *session, const cli_picture *picture, patches *p, const float *rows, uint32_t before,
                    const float *text, const mgv_model_info *texts) {
    const uint32_t count = before + p->across * p->down, width = texts->text_width;
    const uint64_t room = ((uint64_t)count + 1) * width;
    float *embeds = malloc((size_t)room * sizeof *embeds), *whole = NULL;
    mgv_output output = {0};
    mgv_shape shape;
    mgv_error error;
    int status = 0;
    p->values = malloc(count * sizeof *p->values);
    if (!embeds || !p->values) status = cli_fail(CLI_MACHINE, NULL, "out of memory for %u patches", count);
    if (!status) {
        const mgv_patch_view view = o->alone ? MGV_PATCH_ALONE : MGV_PATCH_LEFT_OUT;
        mgv_result result = mgv_patch_embeds(cli_session_model(session), view, rows, count, NULL, embeds, room, &error);
        if (result != MGV_OK) status = cli_fail_library(o->session.model, result, &error);
    }
    cli_compared_by(cli_session_info(session), &output.kind);
    if (!status) whole = encode(session, picture, &output, &shape, &status);
    if (whole) {
        take_cosines(p, o, embeds + (size_t)before * width, text, width);
        p->whole = cosine_of(whole, text, width);
        p->probability = -1;
        if (texts->family != MGV_FAMILY_CLIP && texts->logit_scale != 0)
            p->probability = 1 / (1 + exp(-(exp(texts->logit_scale) * p->whole + texts->logit_bias)));
    }
    free(embeds);
    free(whole);
    return status;
}

static int map_picture(const map_options *o, cli_session *session, const cli_picture *picture, const float *text,
                       const mgv_model_info *texts) {
    const mgv_model *model = cli_session_model(session);
    patches p = {0};
    mgv_output output = {0};
    mgv_shape shape;
    mgv_grid grid;
    mgv_error error;
    double region[4];
    float *rows = NULL;
    int status = 0;
    mgv_result result = mgv_engine_grid(cli_session_engine(session), &picture->image, &grid, &error);
    output.kind = MGV_OUTPUT_TOKENS;
    if (result == MGV_OK) result = mgv_model_region(model, &picture->image, o->session.min_pixels, o->session.max_pixels, region, &error);
    if (result == MGV_OK && !o->pca) result = mgv_patch_source(model, &output, &error);
    if (result != MGV_OK) return cli_fail_library(picture->name, result, &error);
    p.across = grid.w / cli_session_info(session)->merge;
    p.down = grid.h / cli_session_info(session)->merge;
    rows = encode(session, picture, &output, &shape, &status);
    if (rows && shape.rows < (uint64_t)p.across * p.down) status = cli_fail(CLI_MACHINE, picture->name, "its patches make no picture");
    if (rows && !status) {
        const uint32_t before = (uint32_t)(shape.rows - (uint64_t)p.across * p.down); /* class and register tokens */
        status = o->pca ? take_components(&p, rows + before * shape.columns, (uint32_t)shape.columns)
                        : map_text(o, session, picture, &p, rows, before, text, texts);
    }
    if (!status) status = draw(o, picture, region, &p);
    free(rows);
    free(p.values);
    return status;
}

/* ---- the command ---- */

static int map(const map_options *o, const char *name) {
    cli_text_options tower;
    mgv_model_info texts = {0};
    cli_list list = {0};
    cli_picture picture;
    mgv_output_kind kind;
    float *text = NULL;
    int status = 0;
    cli_session *session = cli_session_open(&o->session, &status);
    if (!session) return status;
    if (!o->pca) {
        tower = cli_session_texts(session);
        status = cli_list_add(&list, o->text);
        if (!status) text = cli_encode_text_list(&tower, &list, &texts, &status);
        if (text && texts.text_width != cli_compared_by(cli_session_info(session), &kind))
            status = cli_fail(CLI_BAD_FILE, tower.model, "its texts have %u columns, and its pictures another number", texts.text_width);
    }
    if (!status) {
        status = cli_picture_load(&picture, name);
        if (!status) {
            picture.image.alpha = o->session.alpha;
            status = cli_session_fit(session, &picture);
            if (!status) status = map_picture(o, session, &picture, text, &texts);
            cli_picture_free(&picture);
        }
    }
    free(text);
    cli_list_free(&list);
    cli_session_close(session);
    return status;
}

static int parse_and_map(const cli_command *command, int argc, char **argv, cli_list *names) {
    map_options o;
    int status;
    memset(&o, 0, sizeof o);
    const cli_option options[] = {
        CLI_SESSION_OPTIONS(o.session),
        CLI_LIMIT_OPTIONS(o.session),
        {"--text", CLI_TEXT, &o.text, "TEXT", "show which patches answer this text"},
        {"--alone", CLI_FLAG, &o.alone, NULL, "with --text: the cosine of each patch by itself, instead of what it adds"},
        {"--pca", CLI_FLAG, &o.pca, NULL, "show the first three components of the patches as red, green and blue"},
        CLI_LOWER_CASE_OPTION(o.session.lower_case),
        {"-o", CLI_TEXT, &o.output, "FILE.png", "where to; it appears when it is whole"},
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    status = cli_parse(command, options, names, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!o.session.model) return cli_usage(command, "--model DIR is missing");
    if (!o.output) return cli_usage(command, "-o FILE.png is missing");
    if (o.text && o.pca) return cli_usage(command, "there are --text and --pca: it is either or");
    if (o.alone && !o.text) return cli_usage(command, "--alone is for --text");
    if (!o.text && !o.pca) return cli_usage(command, "--text TEXT or --pca is missing");
    if (names->count != 1) return cli_usage(command, "one IMAGE, not %zu", names->count);
    status = cli_check_output(o.output, o.session.model, o.session.packed, names);
    o.session.row_outputs = 1;
    if (o.text) o.session.tower = MGV_TOWER_BOTH;
    return status == CLI_DONE ? map(&o, names->items[0]) : status;
}

static int run(const cli_command *command, int argc, char **argv) {
    cli_list names = {0};
    int status = parse_and_map(command, argc, argv, &names);
    cli_list_free(&names);
    return status;
}

const cli_command cli_map = {
    "map", "--model DIR (--text TEXT | --pca) -o FILE.png IMAGE", "which patches of a picture answer a text, drawn over it",
    "The picture, and beside it its patches. --text: orange patches speak for the text and blue ones against it: by so much the cosine of\n"
    "picture and text falls, or rises, where the end of the tower does not see them. With --alone the cosine of each patch by itself,\n"
    "from the least to the most in this picture (MaskCLIP, arXiv 2112.01071). Of SigLIP and CLIP. --pca: of any model; patches of like\n"
    "colour are alike. The legend has the numbers.\n",
    run};
