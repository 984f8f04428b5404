package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const agentVolume = "guest-agent-0123456789abcdef"
const longAgo = "2026-01-02T03:04:05Z"

// thing is an instance, volume, snapshot or ingress.
type thing struct {
	id, name, state, address string
	tags                     map[string]string
}

// table has things in the order in which they were made.
type table struct {
	lock sync.Mutex
	byID map[string]*thing
	ids  []string
}

func (t *table) add(one *thing) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.byID == nil {
		t.byID = map[string]*thing{}
	}
	if t.byID[one.id] == nil {
		t.ids = append(t.ids, one.id)
	}
	t.byID[one.id] = one
}

func (t *table) get(id string) *thing {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.byID[id]
}

func (t *table) remove(id string) *thing {
	t.lock.Lock()
	defer t.lock.Unlock()
	one := t.byID[id]
	delete(t.byID, id)
	return one
}

func (t *table) list(tags map[string]string, state string) []*thing {
	t.lock.Lock()
	defer t.lock.Unlock()
	found := []*thing{}
	for _, id := range t.ids {
		one := t.byID[id]
		if one != nil && has(one.tags, tags) && (state == "" || one.state == state) {
			found = append(found, one)
		}
	}
	return found
}

// serveAPI answers as the substrate's daemon (hypeman, API 0.3.0), and returns its address.
func (f *fleet) serveAPI() (string, error) {
	mux := http.NewServeMux()
	handle := func(pattern string, answer http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			f.counts.call(pattern)
			if r.Method != http.MethodGet {
				time.Sleep(f.writeTime)
			}
			answer(w, r)
		})
	}
	capabilities := object{
		"server":          object{"api_version": "0.3.0", "version": "fake-1"},
		"host":            object{"os": "linux", "arch": "amd64"},
		"default_runtime": object{"name": "cloud-hypervisor", "available": true},
		"runtimes": []any{object{
			"name": "cloud-hypervisor", "available": true, "features": []string{"snapshots", "standby", "fork"},
		}},
	}
	amount := object{"effective_limit": 1 << 50, "allocated": 0}
	image := object{
		"name": "docker.io/library/debian:12", "digest": "sha256:" + strings.Repeat("1", 64), "status": "ready",
		"created_at": longAgo, "entrypoint": nil, "cmd": []string{"bash"},
	}
	handle("GET /health", always(object{"status": "ok"}))
	handle("GET /capabilities", always(capabilities))
	handle("GET /resources", always(object{"cpu": amount, "memory": amount, "disk": amount, "network": amount}))
	handle("GET /images", always([]any{image}))
	handle("GET /images/{id}", always(image))
	handle("GET /instances/{id}/logs", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
	})
	handle("POST /instances", f.createInstance)
	handle("POST /volumes/from-archive", f.createVolume)
	for name, kind := range map[string]struct {
		table *table
		shape func(*thing) object
	}{
		"instances": {&f.instances, instanceObject},
		"volumes":   {&f.volumes, volumeObject},
		"snapshots": {&f.snapshots, snapshotObject},
		"ingresses": {&f.ingresses, snapshotObject},
	} {
		handle("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			listed := []object{}
			for _, one := range kind.table.list(queryTags(r), r.URL.Query().Get("state")) {
				listed = append(listed, kind.shape(one))
			}
			reply(w, http.StatusOK, listed)
		})
		handle("GET /"+name+"/{id}", func(w http.ResponseWriter, r *http.Request) {
			answerWith(w, kind.table.get(r.PathValue("id")), kind.shape)
		})
		handle("DELETE /"+name+"/{id}", func(w http.ResponseWriter, r *http.Request) {
			one := kind.table.remove(r.PathValue("id"))
			if one == nil {
				answerWith(w, nil, kind.shape)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	// The harness's own, which are not counted.
	mux.HandleFunc("GET /fleet/counts", f.reportCounts)
	mux.HandleFunc("POST /fleet/reset", f.reset)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go http.Serve(socket, mux)
	return socket.Addr().String(), nil
}

func (f *fleet) createInstance(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string            `json:"name"`
		Tags map[string]string `json:"tags"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		reply(w, http.StatusBadRequest, object{"code": "invalid", "message": err.Error()})
		return
	}
	f.lock.Lock()
	a := &agent{name: body.Name, address: f.address(len(f.agents)), made: time.Now()}
	f.agents = append(f.agents, a)
	f.lock.Unlock()
	set, err := readSet(filepath.Join(f.nodes[body.Tags["svc.node_id"]].directory, "credentials", body.Name))
	if err == nil {
		err = f.beginWith(a, set)
	}
	if err != nil {
		reply(w, http.StatusInternalServerError, object{"code": "internal_error", "message": err.Error()})
		return
	}
	one := &thing{id: "made-" + body.Name, name: body.Name, tags: body.Tags, state: "Running", address: a.address}
	f.instances.add(one)
	reply(w, http.StatusCreated, instanceObject(one))
}

func (f *fleet) createVolume(w http.ResponseWriter, r *http.Request) {
	size, _ := io.Copy(io.Discard, r.Body)
	id := r.URL.Query().Get("id")
	one := &thing{id: id, name: id, tags: queryTags(r)}
	f.volumes.add(one)
	if one.tags["svc.agent"] != "" {
		f.counts.call(fmt.Sprintf("upload of an agent, %d bytes", size))
	}
	reply(w, http.StatusCreated, volumeObject(one))
}

func (f *fleet) reportCounts(w http.ResponseWriter, _ *http.Request) {
	f.counts.lock.Lock()
	calls, times := maps.Clone(f.counts.calls), append([]int64{}, f.counts.times...)
	f.counts.lock.Unlock()
	done, late, last := 0, 0, int64(0)
	f.lock.Lock()
	for _, a := range f.agents {
		at := a.dutiesDone.Load()
		if at > 0 {
			done++
		}
		if at > f.freeze.Milliseconds() {
			late++
		}
		last = max(last, at)
	}
	f.lock.Unlock()
	reply(w, http.StatusOK, object{
		"calls": calls, "healthTimesMs": times, "handshakes": f.counts.handshakes.Load(), "accepted": f.counts.accepted.Load(),
		"duties": done, "late": late, "lastDutiesMs": last,
	})
}

func (f *fleet) reset(w http.ResponseWriter, _ *http.Request) {
	f.counts.lock.Lock()
	f.counts.calls, f.counts.times = map[string]int64{}, nil
	f.counts.lock.Unlock()
	f.counts.handshakes.Store(0)
	f.counts.accepted.Store(0)
	for _, a := range f.agents {
		a.dutiesDone.Store(0)
	}
	f.start = time.Now()
	w.WriteHeader(http.StatusNoContent)
}

type object map[string]any

func instanceObject(one *thing) object {
	return object{
		"id": one.id, "name": one.name, "image": "docker.io/library/debian:12", "state": one.state, "created_at": longAgo,
		"hypervisor": "cloud-hypervisor", "tags": one.tags, "vcpus": 2, "size": "1.0 GB", "overlay_size": "10.0 GB",
		"network": object{"enabled": true, "ip": one.address, "mac": "02:00:00:00:00:01", "name": "default"},
		"env":     object{"SVC_GUEST_PORT": "7071"},
		"volumes": []any{
			object{"volume_id": agentVolume, "mount_path": "/srv/guest-agent", "readonly": true},
			object{"volume_id": one.name + "-credentials", "mount_path": credentialMount, "readonly": true, "overlay": true},
		},
	}
}

func volumeObject(one *thing) object {
	return object{"id": one.id, "name": one.name, "tags": one.tags, "size_gb": 1, "created_at": longAgo}
}

func snapshotObject(one *thing) object {
	return object{
		"id": one.id, "name": one.name, "tags": one.tags, "kind": "Standby", "size_bytes": 1 << 28, "created_at": longAgo,
		"source_instance_id": "none", "source_instance_name": "none", "source_hypervisor": "cloud-hypervisor",
	}
}

func always(value any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, value) }
}

func answerWith(w http.ResponseWriter, one *thing, shape func(*thing) object) {
	if one == nil {
		reply(w, http.StatusNotFound, object{"code": "not_found", "message": "not found"})
		return
	}
	reply(w, http.StatusOK, shape(one))
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(value)
}

func queryTags(r *http.Request) map[string]string {
	tags := map[string]string{}
	for key, values := range r.URL.Query() {
		if strings.HasPrefix(key, "tags[") {
			tags[key[len("tags["):len(key)-1]] = values[0]
		}
	}
	return tags
}

func has(have, want map[string]string) bool {
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}

func merged(one, other map[string]string) map[string]string {
	all := maps.Clone(one)
	maps.Copy(all, other)
	return all
}
