/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What the VPC CNI's ipamd says of itself: its introspection, its checkpoint, its environment. Read
 * in place, without a tree of values: at a thousand pods that would be megabytes. Pure. */

#include "node.h"

/* The answer to /v1/enis of either shape; realtime is the wall clock, against which addresses cool
 * down. -EBADMSG when it is not JSON, -ENOENT when it is another answer: ipamd says 200 and its
 * list of commands to a path that it does not know. */
int ipamd_enis_parse(const char *text, size_t len, usec_t realtime, struct ipamd_view *ret);

/* An address that was given to a pod. */
struct ipamd_allocation {
	struct address address;
	usec_t at; /* wall clock; 0: not said */
};

/* What a checkpoint (ipam.json, ipam-nic-N.json) holds, at most max of them. -EBADMSG when it is
 * not JSON, -EPROTONOSUPPORT for a version that is not known. */
int ipamd_checkpoint_parse(const char *text, size_t len, struct ipamd_allocation *allocations,
                           size_t max, size_t *ret_n, bool *ret_more);

/* A container by the OCI configuration in its bundle. */
struct oci_container {
	char name[64], pod[128], image[192]; /* by containerd's annotations; "" when absent */
	char version[32]; /* of the VPC CNI: its own word, else the image's tag */
	struct cni_settings settings;
};

/* Of the environment only what cni_settings holds is taken; whatever else is there is not looked
 * at. -EBADMSG. */
int oci_config_parse(const char *text, size_t len, struct oci_container *ret);
/* The same from /proc/PID/environ: "NAME=value" with a NUL after each. */
void ipamd_environ_parse(const char *text, size_t len, struct oci_container *ret);
/* The last error of ipamd.log, by its end: of this life of ipamd or of the one before, as the next
 * may have begun since. False when there is none. */
bool ipamd_log_error(const char *text, size_t len, char *ret, size_t size);
