/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "probe.h"

#define MAX_AGE (60 * USEC_PER_SEC) /* of the kernel's tables while no message came */
#define SETTLE  (30 * USEC_PER_SEC) /* a pod that starts has its address before its rules */
#define LOST    (30 * USEC_PER_SEC) /* a pod that ends loses its address before its link */
#define HOLD    (2 * USEC_PER_SEC)  /* of a checkpoint while pods start by the hundred */
#define QUIET   (3 * USEC_PER_SEC)
#define SLOWLY  (60 * USEC_PER_SEC) /* what needs files of each link */
#define UNIT    USEC_PER_SEC

#define NETWORKD "systemd-networkd.service"
#define NM_CLOUD "nm-cloud-setup.timer"

enum { PRIORITY_POD = 512, PRIORITY_POD_SOURCE = 1536 };
enum {
	PODS_MAX = 2048,
	CHECKPOINT_MAX = 8 << 20,
	CHECKPOINTS_MAX = CARDS_MAX,
	SAMPLE = 4, /* pod links whose .link file is looked up */
	LINK_FILE_MAX = 65536,
};

static const char *const run_dirs[] = {"/var/run/aws-node", "/run/aws-node"};

/* Where a card's checkpoint stood when it was last read. */
struct stamp {
	uint64_t device, inode;
	int64_t size, seconds, nanoseconds;
};

struct memory {
	struct stamp stamps[CHECKPOINTS_MAX];
	size_t n_stamps;
	bool known, more; /* a checkpoint was read; there was more than fits */
	struct ipamd_allocation pods[PODS_MAX];
	size_t n_pods;
	uint64_t generation;
	usec_t changed_at; /* when the kernel's tables were last seen to change */
	usec_t lost_since, read_at;
	usec_t slow_at;
	int links, changed_macs;
	char link_file[72];
	bool nm_active;
};

/* An address of a pod, and what of it is there. */
enum { HAS_ROUTE = 1, HAS_512 = 2, HAS_1536 = 4, IN_CHECKPOINT = 8, YOUNG = 16, UP = 32 };

struct pod {
	struct address address;
	uint8_t has;
};

struct counts {
	size_t pods, missing_512, missing_route, sources, lost;
	bool only_rules; /* nobody but the kernel was asked */
};

struct state {
	struct names names;
	char path[512];
	unsigned open;
	const struct net *net;
	struct counts counts;
	size_t missing_1536;
	int dhcp_routes;
	char dhcp_link[IFNAMSIZ];
	usec_t restarted; /* networkd, CLOCK_BOOTTIME; 0: not known */
};

/* ---- the checkpoint ---- */

static bool same_stamp(const struct stamp *a, const struct stamp *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static size_t list_checkpoints(struct run *r, const char *dir, struct stamp *stamps)
{
	struct state *s = run_state(r);
	size_t n = 0;

	if (file_list(run_files(r), dir, &s->names) < 0)
		return 0;
	for (size_t i = 0; i < s->names.n && n < CHECKPOINTS_MAX; i++) {
		const char *name = s->names.name[i], *dot = strrchr(name, '.');
		struct stat st;

		if (strncmp(name, "ipam", 4) != 0 || !dot || strcmp(dot, ".json") != 0)
			continue;
		(void) text_format(s->path, sizeof(s->path), "%s/%s", dir, name);
		if (file_stat(run_files(r), s->path, &st) < 0)
			continue;
		memset(&stamps[n], 0, sizeof(stamps[n])); /* compared as bytes */
		stamps[n].device = st.st_dev;
		stamps[n].inode = st.st_ino;
		stamps[n].size = st.st_size;
		stamps[n].seconds = st.st_mtim.tv_sec;
		stamps[n++].nanoseconds = st.st_mtim.tv_nsec;
	}
	return n;
}

/* The names are those of the listing before; one that is replaced in between is read whole. */
static int read_checkpoints(struct run *r, const char *dir)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	int e = 0;

	m->n_pods = 0;
	m->more = false;
	for (size_t i = 0; i < s->names.n && e == 0; i++) {
		const char *name = s->names.name[i], *dot = strrchr(name, '.');
		_cleanup_(freep) char *text = NULL;
		size_t n = 0, len = 0;
		bool more = false;

		if (strncmp(name, "ipam", 4) != 0 || !dot || strcmp(dot, ".json") != 0)
			continue;
		(void) text_format(s->path, sizeof(s->path), "%s/%s", dir, name);
		e = file_read(run_files(r), s->path, CHECKPOINT_MAX, &text, &len);
		if (e == 0)
			e = ipamd_checkpoint_parse(text, len, m->pods + m->n_pods,
			                           PODS_MAX - m->n_pods, &n, &more);
		m->n_pods += n;
		m->more = m->more || more;
	}
	return e;
}

/* Read again only when one has changed: it is rewritten with every pod that starts or ends. */
static void refresh_checkpoint(struct run *r)
{
	struct stamp stamps[CHECKPOINTS_MAX];
	struct memory *m = run_memory(r);
	const char *dir = run_dirs[0];
	bool same;
	size_t n;

	if (run_woken(r) && m->known && run_now(r) - m->read_at < HOLD)
		return;
	m->read_at = run_now(r);
	n = list_checkpoints(r, dir, stamps);
	if (n == 0)
		n = list_checkpoints(r, dir = run_dirs[1], stamps);
	same = m->known && n == m->n_stamps;
	for (size_t i = 0; i < n && same; i++)
		same = same_stamp(&stamps[i], &m->stamps[i]);
	if (same && n > 0)
		return;
	m->known = n > 0 && read_checkpoints(r, dir) == 0;
	m->n_stamps = n;
	memcpy(m->stamps, stamps, n * sizeof(stamps[0]));
}

/* ---- every pod's address, beside what is there for it ---- */

static bool is_host(const struct address *a, uint8_t len)
{
	return (a->family == AF_INET && len == 32) || (a->family == AF_INET6 && len == 128);
}

static int compare(const void *a, const void *b)
{
	return memcmp(&((const struct pod *) a)->address, &((const struct pod *) b)->address,
	              sizeof(struct address));
}

/* The host's side of a pod's link, as the VPC CNI names it. */
static bool is_pod_link(const struct net_link *l)
{
	return strcmp(l->kind, "veth") == 0 && strncmp(l->name, "eni", 3) == 0;
}

struct pod_link {
	int index;
	bool up;
};

static int compare_links(const void *a, const void *b)
{
	const struct pod_link *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

static size_t add_routes(const struct net *net, struct pod *pods, size_t n)
{
	_cleanup_(freep) struct pod_link *links = calloc(net->n_links + 1, sizeof(*links));
	size_t n_links = 0;

	if (!links)
		return SIZE_MAX;
	for (size_t i = 0; i < net->n_links; i++)
		if (is_pod_link(&net->links[i]))
			links[n_links++] = (struct pod_link){net->links[i].index,
			                                     net_link_is_up(&net->links[i])};
	qsort(links, n_links, sizeof(*links), compare_links);
	for (size_t i = 0; i < net->n_routes; i++) {
		const struct net_route *t = &net->routes[i];
		const struct pod_link *l, wanted = {.index = t->oif};

		if (t->table != RT_TABLE_MAIN || !is_host(&t->dst, t->dst_len))
			continue;
		l = bsearch(&wanted, links, n_links, sizeof(*links), compare_links);
		if (l)
			pods[n++] = (struct pod){t->dst, (uint8_t) (HAS_ROUTE | (l->up ? UP : 0))};
	}
	return n;
}

static size_t add_rules(const struct net *net, struct pod *pods, size_t n)
{
	for (size_t i = 0; i < net->n_rules; i++) {
		const struct net_rule *u = &net->rules[i];

		if (u->priority == PRIORITY_POD && u->table == RT_TABLE_MAIN &&
		    is_host(&u->dst, u->dst_len))
			pods[n++] = (struct pod){u->dst, HAS_512};
		else if (u->priority == PRIORITY_POD_SOURCE && is_host(&u->src, u->src_len))
			pods[n++] = (struct pod){u->src, HAS_1536};
	}
	return n;
}

static size_t add_checkpoint(const struct run *r, const struct memory *m, struct pod *pods,
                             size_t n)
{
	usec_t now = run_realtime(r);

	for (size_t i = 0; m->known && i < m->n_pods; i++) {
		usec_t at = m->pods[i].at;
		bool young = at > now || now - at < SETTLE;

		pods[n++] = (struct pod){m->pods[i].address,
		                         (uint8_t) (IN_CHECKPOINT | (young ? YOUNG : 0))};
	}
	return n;
}

/* What all say of one address, summed up. */
static void count_pod(struct counts *c, uint8_t has, bool checkpoint)
{
	bool pod = has & (IN_CHECKPOINT | HAS_ROUTE);

	c->sources += (has & HAS_1536) != 0;
	if (!pod)
		return;
	c->pods++;
	if (has & YOUNG)
		return;
	c->missing_512 += !(has & HAS_512);
	c->missing_route += !(has & HAS_ROUTE);
	c->lost += checkpoint && !(has & IN_CHECKPOINT) && has & UP;
}

/* One sort of all there is: n log n in pods. */
static int compare_all(struct run *r, struct counts *ret)
{
	const struct memory *m = run_memory(r);
	const struct net *net = ((const struct state *) run_state(r))->net;
	_cleanup_(freep) struct pod *pods =
		calloc(net->n_routes + net->n_rules + PODS_MAX + 1, sizeof(*pods));
	size_t n;

	if (!pods)
		return -ENOMEM;
	n = add_routes(net, pods, 0);
	if (n == SIZE_MAX)
		return -ENOMEM;
	n = add_rules(net, pods, n);
	n = add_checkpoint(r, m, pods, n);
	qsort(pods, n, sizeof(*pods), compare);
	*ret = (struct counts){.only_rules = !m->known};
	for (size_t i = 0; i < n;) {
		uint8_t has = 0;
		size_t first = i;

		for (; i < n && compare(&pods[first], &pods[i]) == 0; i++)
			has |= pods[i].has;
		count_pod(ret, has, m->known && !m->more);
	}
	return 0;
}

/* Pods on secondary ENIs have a rule for what they send. Which pods those are, introspection tells;
 * it is a minute old, so that it counts only while the tables have not changed since. */
static size_t missing_sources(const struct run *r, const struct counts *c, usec_t changed_at)
{
	const struct ipamd_view *v = &run_node(r)->ipamd;
	size_t expected = 0;

	if (!v->at || changed_at + QUIET > v->at)
		return 0;
	for (size_t i = 0; i < v->n; i++)
		if (!v->enis[i].primary && v->enis[i].table != RT_TABLE_MAIN)
			expected += (size_t) v->enis[i].assigned;
	return expected > c->sources ? expected - c->sources : 0;
}

/* ---- who interferes ---- */

/* nodeadm notes whose an interface is; "" where it does not. */
static void read_manager(struct run *r, const char *link, char *ret, size_t size)
{
	struct state *s = run_state(r);

	ret[0] = 0;
	(void) text_format(s->path, sizeof(s->path), "/etc/eks/nodeadm/udev-net-manager/%s/%s",
	                   run_node(r)->instance_id, link);
	if (file_read_line(run_files(r), s->path, ret, size) < 0)
		ret[0] = 0;
}

static bool is_default(const struct net_route *t)
{
	return t->dst_len == 0 && t->type == RTN_UNICAST;
}

/* A DHCP default route in main over an ENI which the CNI has set up too, or over any while rules
 * are missing. Where nodeadm gave the ENI to networkd, and the CNI left it alone, that is right. */
static void find_networkd(struct run *r)
{
	const struct network *w = &run_node(r)->network;
	struct state *s = run_state(r);

	for (size_t e = 0; e < w->n_enis; e++) {
		const struct net_link *l =
			w->enis[e].name[0] ? net_link_by_mac(s->net, w->enis[e].mac) : NULL;
		int dhcp = 0, own = 0;
		char manager[32];

		if (!l || w->enis[e].managed_by == MANAGED_PRIMARY)
			continue;
		for (size_t i = 0; i < s->net->n_routes; i++) {
			const struct net_route *t = &s->net->routes[i];

			if (t->oif != l->index || !is_default(t))
				continue;
			dhcp += t->table == RT_TABLE_MAIN && t->protocol == RTPROT_DHCP;
			own += t->table != RT_TABLE_MAIN && t->protocol != RTPROT_DHCP;
		}
		if (dhcp == 0)
			continue;
		read_manager(r, l->name, manager, sizeof(manager));
		if (strncmp(manager, "io.systemd", 10) == 0 || (!own && !s->counts.missing_512))
			continue;
		s->dhcp_routes += dhcp;
		memcpy(s->dhcp_link, l->name, sizeof(s->dhcp_link));
	}
}

static int count_nm_rules(const struct net *net)
{
	int n = 0;

	for (size_t i = 0; i < net->n_rules; i++) {
		uint32_t t = net->rules[i].table;

		n += (t >= 30200 && t < 30300) || (t >= 30400 && t < 30500);
	}
	return n;
}

static void observe_nm(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	int rules = count_nm_rules(s->net);
	struct observation *o;

	if (rules == 0 && !m->nm_active)
		return;
	o = run_observe(r, LAYER_PODNET, "nm-cloud-setup", NM_CLOUD, OUTCOME_FOREIGN, 0);
	observation_number(o, "rules", rules);
	observation_number(o, "active", m->nm_active);
	observation_detail(o, "nm-cloud-setup: %d rules of its tables, timer %s", rules,
	                   m->nm_active ? "active" : "not active");
}

/* ---- what udev does to the pods' links ---- */

static bool line_value(const char *text, const char *key, char *ret, size_t size)
{
	size_t n = strlen(key);

	for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p != 0) {
		p += strspn(p, " \t");
		if (strncmp(p, key, n) != 0)
			continue;
		(void) text_clean(ret, size, p + n, strcspn(p + n, "\n"));
		return true;
	}
	return false;
}

/* udev notes the .link file that it chose: that is the one that counts, whatever others say. */
static bool is_persistent(struct run *r, const struct net_link *l, char *ret_file, size_t size)
{
	struct state *s = run_state(r);
	const char *text;
	char file[72], policy[32];
	size_t len;

	(void) text_format(s->path, sizeof(s->path), "/run/udev/data/n%d", l->index);
	if (run_read(r, s->path, LINK_FILE_MAX, &text, &len) < 0 ||
	    !line_value(text, "E:ID_NET_LINK_FILE=", file, sizeof(file)) || file[0] != '/')
		return false;
	if (run_read(r, file, LINK_FILE_MAX, &text, &len) < 0 ||
	    !line_value(text, "MACAddressPolicy=", policy, sizeof(policy)) ||
	    strncmp(policy, "persistent", 10) != 0)
		return false;
	(void) text_format(ret_file, size, "%s", file);
	return true;
}

/* NET_ADDR_SET: not the random one that the kernel gave it. */
static bool was_set(struct run *r, const struct net_link *l)
{
	struct state *s = run_state(r);
	char type[8];

	(void) text_format(s->path, sizeof(s->path), "/sys/class/net/%s/addr_assign_type", l->name);
	return file_read_line(run_files(r), s->path, type, sizeof(type)) == 0 &&
	       strcmp(type, "3") == 0;
}

static void look_at_links(struct run *r)
{
	struct memory *m = run_memory(r);
	const struct net *net = ((const struct state *) run_state(r))->net;

	m->links = m->changed_macs = 0;
	m->link_file[0] = 0;
	for (size_t i = net->n_links; i > 0 && m->links < SAMPLE; i--) {
		const struct net_link *l = &net->links[i - 1];
		char file[sizeof(m->link_file)];

		if (!is_pod_link(l))
			continue;
		m->links++;
		if (!is_persistent(r, l, file, sizeof(file)) || !was_set(r, l))
			continue;
		m->changed_macs++;
		memcpy(m->link_file, file, sizeof(file));
	}
}

static void observe_links(struct run *r)
{
	const struct memory *m = run_memory(r);
	struct observation *o;

	if (m->links == 0)
		return;
	o = run_observe(r, LAYER_PODNET, "mac-policy", "",
	                m->changed_macs ? OUTCOME_FOREIGN : OUTCOME_OK, 0);
	observation_number(o, "links", m->links);
	observation_number(o, "changed", m->changed_macs);
	if (m->changed_macs)
		observation_text(o, "file", "%s", m->link_file);
	observation_detail(o, "%d of %d pod links looked at got a new MAC from udev",
	                   m->changed_macs, m->links);
}

/* ---- routes and addresses of the host ---- */

static bool is_eni(const struct network *w, const struct net *net, int index)
{
	const struct net_link *l = net_link_by_index(net, index);

	for (size_t i = 0; l && i < w->n_enis; i++)
		if (strcmp(w->enis[i].mac, l->mac) == 0 || strcmp(w->enis[i].mac, l->perm_mac) == 0)
			return true;
	return false;
}

struct defaults {
	int routes, lowest, ties, oif;
	bool primary; /* the primary ENI is among the lowest */
};

static void find_defaults(const struct run *r, const struct net *net, struct defaults *d)
{
	const struct node *n = run_node(r);
	const struct net_link *primary = n->mac[0] ? net_link_by_mac(net, n->mac) : NULL;

	*d = (struct defaults){.lowest = INT32_MAX};
	for (size_t i = 0; i < net->n_routes; i++) {
		const struct net_route *t = &net->routes[i];
		int metric = t->priority > INT32_MAX ? INT32_MAX : (int) t->priority;

		if (t->family != AF_INET || t->table != RT_TABLE_MAIN || !is_default(t) ||
		    !is_eni(&n->network, net, t->oif))
			continue;
		d->routes++;
		if (metric > d->lowest)
			continue;
		if (metric < d->lowest) {
			d->ties = 0;
			d->primary = false;
			d->oif = t->oif;
		}
		d->lowest = metric;
		d->ties++;
		d->primary = d->primary || (primary && t->oif == primary->index);
	}
}

/* The node's own address on another ENI than its primary one; "" when it is right or not known. */
static const char *stray_link(const struct run *r, const struct net *net)
{
	const struct node *n = run_node(r);
	const struct net_link *primary = n->mac[0] ? net_link_by_mac(net, n->mac) : NULL;
	const struct net_link *stray = NULL;

	for (size_t i = 0; primary && n->private_ip.family && i < net->n_addrs; i++) {
		if (!address_equal(&net->addrs[i].address, &n->private_ip))
			continue;
		if (net->addrs[i].index == primary->index)
			return "";
		stray = net_link_by_index(net, net->addrs[i].index);
	}
	return stray && net_link_is_nic(stray) ? stray->name : "";
}

static void observe_defaults(struct run *r)
{
	const struct net *net = ((const struct state *) run_state(r))->net;
	const struct node *n = run_node(r);
	const char *stray = stray_link(r, net);
	const struct net_link *l;
	struct observation *o;
	struct defaults d;
	bool bad;

	find_defaults(r, net, &d);
	if (d.routes == 0)
		return;
	bad = d.ties > 1 || (n->mac[0] && !d.primary && net_link_by_mac(net, n->mac)) || stray[0];
	l = net_link_by_index(net, d.oif);
	o = run_observe(r, LAYER_PODNET, "default-routes", "", bad ? OUTCOME_FOREIGN : OUTCOME_OK,
	                0);
	observation_number(o, "default_routes", d.routes);
	observation_number(o, "metric", d.lowest);
	observation_number(o, "ties", d.ties);
	if (l)
		observation_text(o, "link", "%s", l->name);
	if (stray[0])
		observation_text(o, "stray", "%s", stray);
	observation_detail(o, "%d default routes over ENIs in main, %d of the lowest metric %d",
	                   d.routes, d.ties, d.lowest);
}

static void observe_ipv6(struct run *r)
{
	const struct net *net = ((const struct state *) run_state(r))->net;
	const struct node *n = run_node(r);
	const struct net_link *l = n->mac[0] ? net_link_by_mac(net, n->mac) : NULL;
	struct observation *o;
	bool there = false;

	if (!n->cni.known || !n->cni.ipv6 || !l)
		return;
	for (size_t i = 0; i < net->n_addrs; i++)
		there = there || (net->addrs[i].index == l->index &&
		                  net->addrs[i].address.family == AF_INET6 &&
		                  net->addrs[i].scope == RT_SCOPE_UNIVERSE);
	o = run_observe(r, LAYER_PODNET, "ipv6", l->name, there ? OUTCOME_OK : OUTCOME_ABSENT, 0);
	observation_detail(o, "%s has %s global IPv6 address", l->name, there ? "a" : "no");
}

/* ---- sysctls ---- */

static int read_sysctl(struct run *r, const char *path)
{
	char line[16];
	uint64_t n;

	if (file_read_line(run_files(r), path, line, sizeof(line)) < 0 ||
	    text_to_uint(line, 0, 1 << 16, &n) < 0)
		return -1;
	return (int) n;
}

static void observe_forward(struct run *r)
{
	const struct node *n = run_node(r);
	struct state *s = run_state(r);
	bool ipv6 = n->cni.known ? n->cni.ipv6 : n->network.ipv6;
	const char *name = ipv6 ? "net.ipv6.conf.all.forwarding" : "net.ipv4.ip_forward";
	int forward = read_sysctl(r, ipv6 ? "/proc/sys/net/ipv6/conf/all/forwarding"
	                                  : "/proc/sys/net/ipv4/ip_forward");
	int filter = read_sysctl(r, "/proc/sys/net/ipv4/conf/all/rp_filter");
	bool off = forward == 0 && s->counts.pods > 0;
	struct observation *o;

	if (forward < 0)
		return;
	o = run_observe(r, LAYER_PODNET, "forward", name, off ? OUTCOME_FAILED : OUTCOME_OK, 0);
	observation_number(o, "ip_forward", forward);
	observation_number(o, "pod_ips", (int64_t) s->counts.pods);
	if (filter >= 0)
		observation_number(o, "rp_filter", filter);
	observation_detail(o, "%s is %d", name, forward);
}

/* ---- what came of it ---- */

static void observe_rules(struct run *r)
{
	struct state *s = run_state(r);
	const struct counts *c = &s->counts;
	bool bad = (c->missing_512 || c->missing_route || s->missing_1536) && !s->net->partial;
	struct observation *o;

	if (c->pods == 0) {
		o = run_observe(r, LAYER_PODNET, "rules", "", OUTCOME_SKIPPED, 0);
		observation_detail(o, "no pods");
		return;
	}
	o = run_observe(r, LAYER_PODNET, "rules", "", bad ? OUTCOME_ABSENT : OUTCOME_OK, 0);
	observation_number(o, "pod_ips", (int64_t) c->pods);
	observation_number(o, "missing_512", (int64_t) c->missing_512);
	observation_number(o, "missing_1536", (int64_t) s->missing_1536);
	observation_number(o, "missing_routes", (int64_t) c->missing_route);
	if (bad && s->restarted && run_now(r) >= s->restarted)
		observation_number(o, "networkd_restarted_s",
		                   (int64_t) ((run_now(r) - s->restarted) / USEC_PER_SEC));
	observation_detail(
		o, "%zu pod addresses%s: %zu without rule %d, %zu without %d, %zu without a route",
		c->pods, c->only_rules ? ", by the kernel alone" : "", c->missing_512, PRIORITY_POD,
		s->missing_1536, PRIORITY_POD_SOURCE, c->missing_route);
}

static void observe_networkd(struct run *r)
{
	const struct state *s = run_state(r);
	struct observation *o;

	if (s->dhcp_routes == 0)
		return;
	o = run_observe(r, LAYER_PODNET, "networkd", s->dhcp_link, OUTCOME_FOREIGN, 0);
	observation_number(o, "dhcp_routes", s->dhcp_routes);
	if (s->restarted && run_now(r) >= s->restarted)
		observation_number(o, "networkd_restarted_s",
		                   (int64_t) ((run_now(r) - s->restarted) / USEC_PER_SEC));
	observation_detail(o, "%s has a DHCP default route in main", s->dhcp_link);
}

/* A pod that ends is without its address for a moment before its link goes; one whose link stays is
 * alive and was forgotten. */
static void observe_lost(struct run *r)
{
	struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	const struct ipamd_view *v = &run_node(r)->ipamd;
	struct observation *o;
	bool ripe;

	if (!m->known || m->more || s->counts.pods == 0 || s->net->partial)
		return;
	if (s->counts.lost == 0)
		m->lost_since = 0;
	else if (!m->lost_since)
		m->lost_since = run_now(r);
	ripe = m->lost_since && (run_once(r) || run_now(r) - m->lost_since >= LOST);
	o = run_observe(r, LAYER_ADDRESS, "checkpoint", "", ripe ? OUTCOME_ABSENT : OUTCOME_OK, 0);
	observation_number(o, "routes", (int64_t) s->counts.pods);
	observation_number(o, "allocations", (int64_t) m->n_pods);
	observation_number(o, "lost", (int64_t) s->counts.lost);
	if (v->began && run_now(r) >= v->began)
		observation_number(o, "restarted_s",
		                   (int64_t) ((run_now(r) - v->began) / USEC_PER_SEC));
	observation_detail(o, "%zu of %zu pod addresses are not in ipamd's checkpoint",
	                   s->counts.lost, s->counts.pods);
}

static void finish(struct run *r)
{
	struct state *s = run_state(r);
	const struct net *net = NULL;

	/* the snapshot is valid until the loop was entered */
	if (run_net(r, MAX_AGE, &net) == 0)
		s->net = net;
	else
		s->net = NULL;
	if (!s->net) {
		struct observation *o = run_observe(r, LAYER_PODNET, "", "", OUTCOME_UNKNOWN, 0);

		observation_detail(o, "cannot read the kernel's tables");
		run_end(r);
		return;
	}
	observe_networkd(r);
	observe_nm(r);
	observe_links(r);
	observe_forward(r);
	observe_defaults(r);
	observe_ipv6(r);
	observe_lost(r);
	observe_rules(r);
	run_end(r);
}

static void on_unit(struct run *r, const struct bus_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	if (reply->unit && tag == 0 && reply->unit->active_enter)
		s->restarted = run_from_monotonic(r, reply->unit->active_enter);
	if (reply->unit && tag == 1)
		m->nm_active = strcmp(reply->unit->active, "active") == 0;
	if (--s->open == 0)
		finish(r); /* r is gone */
}

static void ask_unit(struct run *r, const char *unit, uintptr_t tag)
{
	struct state *s = run_state(r);

	if (run_unit(r, unit, UNIT, on_unit, tag) == 0)
		s->open++;
}

/* Files of each link and systemd's word, which cost more than a look at the tables. */
static void look_slowly(struct run *r)
{
	struct memory *m = run_memory(r);
	struct stat st;

	if (m->slow_at && run_now(r) - m->slow_at < SLOWLY && !run_once(r))
		return;
	m->slow_at = run_now(r);
	look_at_links(r);
	if (file_stat(run_files(r), "/usr/lib/systemd/system/" NM_CLOUD, &st) == 0 ||
	    file_stat(run_files(r), "/etc/systemd/system/" NM_CLOUD, &st) == 0)
		ask_unit(r, NM_CLOUD, 1);
	else
		m->nm_active = false;
}

static int start(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	int e;

	e = run_net(r, MAX_AGE, &s->net);
	if (e < 0)
		return e;
	if (s->net->generation != m->generation) {
		m->generation = s->net->generation;
		m->changed_at = run_now(r);
	}
	refresh_checkpoint(r);
	e = compare_all(r, &s->counts);
	if (e < 0)
		return e;
	s->missing_1536 = missing_sources(r, &s->counts, m->changed_at);
	find_networkd(r);
	look_slowly(r);
	if (s->dhcp_routes || s->counts.missing_512 || s->missing_1536)
		ask_unit(r, NETWORKD, 0);
	if (s->open == 0)
		finish(r);
	return 0;
}

/* ---- what it means ---- */

static int get(const struct observation *o, const char *key)
{
	return (int) evidence_number(o, key, -1);
}

static void say_restart(const struct observation *o, struct words *ret)
{
	int s = get(o, "networkd_restarted_s");

	if (s >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary),
		                   ", networkd was restarted %d s ago", s);
}

static enum code judge_rules(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "of %d pod addresses %d lack their rule of priority 512, %d of 1536",
	                   get(o, "pod_ips"), get(o, "missing_512"), get(o, "missing_1536"));
	if (get(o, "missing_routes") >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary), ", %d their route",
		                   get(o, "missing_routes"));
	say_restart(o, ret);
	return CODE_PodRulesMissing;
}

static enum code judge_networkd(const struct observation *o, struct words *ret)
{
	(void) text_format(
		ret->summary, sizeof(ret->summary),
		"systemd-networkd manages secondary ENI %s: %d default route%s of DHCP in main",
		o->subject, get(o, "dhcp_routes"), get(o, "dhcp_routes") == 1 ? "" : "s");
	say_restart(o, ret);
	return CODE_NetworkdManagesEni;
}

static enum code judge_nm(const struct observation *o, struct words *ret)
{
	(void) text_format(
		ret->summary, sizeof(ret->summary),
		"nm-cloud-setup is at work: %d rules of its tables 30200 and 30400, timer %s",
		get(o, "rules"), get(o, "active") == 1 ? "active" : "not active");
	return CODE_NetworkManagerInterferes;
}

static enum code judge_links(const struct observation *o, struct words *ret)
{
	const char *file = evidence_get_text(o, "file");

	(void) text_format(
		ret->summary, sizeof(ret->summary),
		"%s has MACAddressPolicy=persistent, and %d of %d pod links got a new MAC",
		file[0] ? file : "udev's .link file for pods", get(o, "changed"), get(o, "links"));
	return CODE_MacPolicyPersistent;
}

static enum code judge_forward(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, sizeof(ret->summary), "%s is 0", o->subject);
	if (get(o, "pod_ips") > 0)
		(void) text_append(
			ret->summary, sizeof(ret->summary),
			" with %d pod addresses in use: nothing of theirs leaves the node",
			get(o, "pod_ips"));
	return CODE_IpForwardDisabled;
}

static enum code judge_defaults(const struct observation *o, struct words *ret)
{
	const char *link = evidence_get_text(o, "link"), *stray = evidence_get_text(o, "stray");

	if (stray[0]) {
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "the node's own address is on %s, which is not the primary ENI",
		                   stray);
		return CODE_EniRouteConflict;
	}
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "%d default routes over ENIs in main", get(o, "default_routes"));
	if (get(o, "ties") > 1 || get(o, "ties") < 0)
		(void) text_append(ret->summary, sizeof(ret->summary), ", several of metric %d",
		                   get(o, "metric"));
	else
		(void) text_append(ret->summary, sizeof(ret->summary),
		                   ", the first is over %s, not over the primary ENI", link);
	return CODE_EniRouteConflict;
}

static enum code judge_lost(const struct observation *o, struct words *ret)
{
	int lost = get(o, "lost");

	if (lost < 0)
		lost = get(o, "routes") - get(o, "allocations");
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "%d of %d pods' addresses are not in ipamd's checkpoint", lost,
	                   get(o, "routes"));
	if (get(o, "restarted_s") >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary),
		                   ", ipamd was started %d s ago", get(o, "restarted_s"));
	return CODE_AllocationsLost;
}

static enum code judge_ipv6(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "IPv6 cluster, and the primary ENI %s has no global IPv6 address",
	                   o->subject);
	return CODE_Ipv6AddressMissing;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_ABSENT && o->outcome != OUTCOME_FOREIGN &&
	    o->outcome != OUTCOME_FAILED)
		return CODE_NONE;
	if (strcmp(o->aspect, "rules") == 0)
		return judge_rules(o, ret);
	if (strcmp(o->aspect, "networkd") == 0)
		return judge_networkd(o, ret);
	if (strcmp(o->aspect, "nm-cloud-setup") == 0)
		return judge_nm(o, ret);
	if (strcmp(o->aspect, "mac-policy") == 0)
		return judge_links(o, ret);
	if (strcmp(o->aspect, "forward") == 0)
		return judge_forward(o, ret);
	if (strcmp(o->aspect, "default-routes") == 0)
		return judge_defaults(o, ret);
	if (strcmp(o->aspect, "checkpoint") == 0)
		return judge_lost(o, ret);
	return strcmp(o->aspect, "ipv6") == 0 ? judge_ipv6(o, ret) : CODE_NONE;
}

const struct probe probe_podnet = {
	.name = "podnet",
	.what = "each pod's rules, route and link on the host, and who interferes with them",
	.layer = LAYER_PODNET,
	.every = 30 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.retry = USEC_PER_SEC,
	.timeout = 4 * USEC_PER_SEC,
	.after = "eni",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.units = {NETWORKD},
	.on_net = true,
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_PodRulesMissing, CODE_NetworkManagerInterferes, CODE_NetworkdManagesEni,
                  CODE_MacPolicyPersistent, CODE_IpForwardDisabled, CODE_EniRouteConflict,
                  CODE_AllocationsLost, CODE_Ipv6AddressMissing},
};
