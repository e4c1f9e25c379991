/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The few messages of CRI that tell how a container ended: requests made, answers read. Pure. */

#include "grpc.h"

enum { CRI_ID_MAX = 80, CRI_REASON_MAX = 32 };

/* How a container ended, by ContainerStatus. */
struct cri_exit {
	int code;
	int64_t finished;            /* wall clock, s; 0: not said */
	char reason[CRI_REASON_MAX]; /* "Error", "OOMKilled", "Completed", "StartError" */
};

/* Messages for ListContainers and ContainerStatus: the length, or -ENOSPC. */
ssize_t cri_list_request(uint8_t *dst, size_t size, const char *container);
ssize_t cri_status_request(uint8_t *dst, size_t size, const char *id);
/* Of the containers listed, the one that was made last of those that have ended. -ENOENT: none has;
 * -EBADMSG. */
int cri_newest_exited(const void *message, size_t len, char ret_id[static CRI_ID_MAX]);
/* -ENOENT: it has not ended; -EBADMSG. */
int cri_exit_read(const void *message, size_t len, struct cri_exit *ret);
/* What an exit code stands for, in some words: "out of memory"; "" where it says nothing. */
const char *cri_exit_meaning(int code, const char *reason);
