/* WebP through libwebp: of an animation the first frame on its canvas. */
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

static int knows(decode_bytes file) { return decode_starts(file, 0, "RIFF", 4) && decode_starts(file, 8, "WEBP", 4); }

#ifdef MEGAVIT_WEBP
#include <webp/decode.h>
#include <webp/demux.h>

static WebPDemuxer *open_file(decode_bytes file, decode_reason *why) {
    WebPData data;
    WebPDemuxState state;
    WebPDemuxer *demuxer;
    WebPDataInit(&data);
    data.bytes = file.data;
    data.size = file.length;
    demuxer = WebPDemuxPartial(&data, &state);
    if (demuxer && state == WEBP_DEMUX_DONE) return demuxer;
    WebPDemuxDelete(demuxer);
    if (state == WEBP_DEMUX_PARSE_ERROR) decode_fail(why, "its structure is damaged");
    else decode_cut_short(why);
    return NULL;
}

static uint32_t orientation_of(WebPDemuxer *demuxer) {
    WebPChunkIterator chunk;
    uint32_t orientation = 0;
    decode_bytes bytes;
    if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
        bytes.data = chunk.chunk.bytes;
        bytes.length = chunk.chunk.size;
        orientation = exif_orientation(bytes);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    if (!orientation && WebPDemuxGetChunk(demuxer, "XMP ", 1, &chunk)) {
        bytes.data = chunk.chunk.bytes;
        bytes.length = chunk.chunk.size;
        orientation = xmp_orientation(bytes);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    return orientation;
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    WebPDemuxer *demuxer = open_file(file, why);
    if (!demuxer) return 0;
    out->width = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH);
    out->height = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT);
    out->orientation = orientation_of(demuxer);
    out->memory = (uint64_t)out->width * out->height * 10 + 65536; /* four of the result, four of a lossless picture inside, alpha */
    WebPDemuxDelete(demuxer);
    return 1;
}

static int decode_frame(const WebPIterator *frame, const decode_info *known, decode_pixels *out, decode_reason *why) {
    WebPDecoderConfig config;
    const uint32_t left = (uint32_t)frame->x_offset, top = (uint32_t)frame->y_offset;
    int alpha, whole;
    VP8StatusCode status;
    if (!WebPInitDecoderConfig(&config)) return decode_fail(why, "libwebp is of another version than its header");
    status = WebPGetFeatures(frame->fragment.bytes, frame->fragment.size, &config.input);
    if (status != VP8_STATUS_OK) return decode_fail(why, "its picture is damaged");
    whole = (uint32_t)config.input.width == known->width && (uint32_t)config.input.height == known->height;
    alpha = config.input.has_alpha || frame->has_alpha || !whole; /* what the frame does not cover is transparent */
    if ((uint32_t)config.input.width > known->width - left || (uint32_t)config.input.height > known->height - top)
        return decode_fail(why, "its first frame reaches beyond the picture");
    if (!decode_reserve(out, known->width, known->height, alpha ? 4 : 3, why)) return 0;
    config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.stride = (int)(out->width * out->channels);
    config.output.u.RGBA.rgba = out->data + ((size_t)top * out->width + left) * out->channels;
    config.output.u.RGBA.size = (size_t)out->width * out->channels * out->height - (size_t)(config.output.u.RGBA.rgba - out->data);
    status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    WebPFreeDecBuffer(&config.output);
    if (status == VP8_STATUS_OK) return 1;
    if (status == VP8_STATUS_OUT_OF_MEMORY) return decode_no_memory(why);
    return status == VP8_STATUS_NOT_ENOUGH_DATA ? decode_cut_short(why) : decode_fail(why, "its picture is damaged");
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    WebPDemuxer *demuxer = open_file(file, why);
    WebPIterator frame;
    int good = 0;
    if (!demuxer) return 0;
    if (WebPDemuxGetFrame(demuxer, 1, &frame)) {
        good = frame.complete ? decode_frame(&frame, known, out, why) : decode_cut_short(why);
        WebPDemuxReleaseIterator(&frame);
    } else {
        decode_fail(why, "there is no picture in it");
    }
    WebPDemuxDelete(demuxer);
    return good;
}

const decoder decode_webp = {"WebP", "libwebp " MEGAVIT_WEBP, "libwebp-dev", knows, info, pixels, 0};
#else
const decoder decode_webp = {"WebP", NULL, "libwebp-dev", knows, NULL, NULL, 0};
#endif
