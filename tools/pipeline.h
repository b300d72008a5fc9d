/* A pipeline: worker threads do items 0, 1, 2 ... ahead of one consumer, who takes their results in that order.

   Results lie in slots, of which there are so many and no more: when all are full, workers wait. Memory that they need meanwhile is counted
   in budgets, which are granted in the order of the items. So the first item that is not done never waits for a later one, and the whole
   comes to an end whatever the items need, as long as each fits into its budget alone and the consumer gives slots back before it waits for
   more than there are. Nothing depends on which thread does what, or when. */
#ifndef MEGAVIT_PIPELINE_H
#define MEGAVIT_PIPELINE_H

#include <stddef.h>
#include <stdint.h>

enum { PIPELINE_BUDGETS = 2 };

typedef struct pipeline pipeline;

typedef struct pipeline_desc {
    size_t count;      /* of items */
    uint32_t threads;  /* at least 1 */
    uint32_t slots;    /* at least 1, and more than the consumer holds at a time */
    uint64_t budgets[PIPELINE_BUDGETS]; /* bytes */
    /* Does an item, on any of the threads, and leaves its result in the slot. */
    void (*work)(void *user, pipeline *p, size_t item, uint32_t slot);
    void *user;
} pipeline_desc;

/* NULL: no memory, or not one thread. */
pipeline *pipeline_start(const pipeline_desc *desc);
/* The slot of the next item, when it is done; 0 when all were taken. */
int pipeline_take(pipeline *p, size_t *item, uint32_t *slot);
/* The slot may be filled anew. */
void pipeline_give_back(pipeline *p, uint32_t slot);
/* Ends: items that no thread has begun are not done any more. Waits for the threads. */
void pipeline_stop(pipeline *p);

/* ---- for work ---- */

/* Waits until all earlier items have been granted their part of this budget, or have done without, and the bytes are there. At most once for
   an item and budget, and no more than the budget. 0: the pipeline is being stopped, and nothing was granted. */
int pipeline_reserve(pipeline *p, uint32_t slot, int budget, uint64_t bytes);
/* Any thread, at any time. */
void pipeline_release(pipeline *p, int budget, uint64_t bytes);

#endif
