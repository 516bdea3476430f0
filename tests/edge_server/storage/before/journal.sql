BEGIN TRANSACTION;
CREATE TABLE choices (attempt INTEGER PRIMARY KEY, round INTEGER NOT NULL, said TEXT NOT NULL);
CREATE TABLE classes (names TEXT NOT NULL, agreed_at REAL NOT NULL);
CREATE TABLE deliveries (
    attempt INTEGER NOT NULL, device TEXT NOT NULL, message TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (attempt, device));
CREATE TABLE devices (
    device TEXT PRIMARY KEY, session INTEGER NOT NULL, profile TEXT NOT NULL, data TEXT NOT NULL,
    seen_at REAL NOT NULL);
INSERT INTO "devices" VALUES('pi-3',7,'{"machine":"","processor":"","architecture":"","cores":1,"memory_bytes":0,"memory_free_bytes":null,"disk_bytes":null,"disk_free_bytes":null,"accelerator":null,"speed":null,"celsius":null,"throttling":[],"power":null,"battery":null,"link":null,"tier":2,"software":{}}','{"source":"digits","examples":24,"input_shape":[1,8,8],"num_classes":10,"named":false,"class_names":[]}',1700000000.0);
CREATE TABLE observations (round INTEGER PRIMARY KEY, said TEXT NOT NULL);
CREATE TABLE plannings (
    attempt INTEGER PRIMARY KEY, round INTEGER NOT NULL, deliver INTEGER NOT NULL, needed INTEGER,
    selected TEXT NOT NULL, clients TEXT NOT NULL, rng TEXT NOT NULL, planned_at REAL NOT NULL);
INSERT INTO "plannings" VALUES(4,3,0,NULL,'["pi-3"]','{}','[]',1700000000.0);
INSERT INTO "plannings" VALUES(5,3,1,NULL,'["pi-4"]','{}','[]',1700000000.0);
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, state_sha256 TEXT NOT NULL, updates TEXT NOT NULL, record TEXT NOT NULL,
    traffic TEXT NOT NULL, closed_at REAL NOT NULL);
CREATE TABLE run (
    run TEXT NOT NULL, federation TEXT NOT NULL, began_at REAL NOT NULL);
CREATE TABLE strikes (device TEXT NOT NULL, round INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE tasks (
    device TEXT PRIMARY KEY, attempt INTEGER NOT NULL, task TEXT NOT NULL, max_bytes INTEGER NOT NULL);
INSERT INTO "tasks" VALUES('pi-3',4,'{"kind":"task","protocol":1,"federation":"home","run":"run-1","round":3,"attempt":4,"action":"train","tier":2,"ratio":0.5,"model":{"name":"two-nn","input_shape":[1,8,8],"num_classes":10},"preprocessing":{"scale":16.0,"mean":[0.5],"std":[0.25],"class_names":["zero","one"]},"spec":{"kept":{"conv2":32,"linear1":[4,0,2]}},"personal":{"ratios":{"conv2":0.5}},"returned":["conv2","linear2"],"masking":{"specs":[{"kept":{"conv2":32}},{"kept":{}}],"segments":[{"holders":[1],"size":100},{"holders":[0,1],"size":300}],"value_range":8.0,"weighting":"examples","max_weight":120,"min_holders":3,"threshold":0.75},"depot":{"address":"https://store.lan:9000/home/","above":50000000,"resumable":true},"addresses":{"get":{"state":"https://store.lan:9000/home/blobs/5570a3cf02207f1d352d2cfea385be4bc0b2b9414f606baa6f55db60b232f221?signature=1"},"put":"https://store.lan:9000/home/updates/run-1/4/pi-3?signature=2"},"uplink":[{"name":"int8","options":{"levels":7}},{"name":"zstd","options":{}}],"training":{"optimizer":"sgd","learning_rate":0.05,"momentum":0.9,"weight_decay":0.0001,"batch_size":16,"local_epochs":2,"seed":7,"participants":10,"objectives":[{"name":"prox","options":{"mu":0.1}},{"name":"attentive","options":{"layers":["conv2"]}}]},"blobs":{"layer-1":{"digest":"5570a3cf02207f1d352d2cfea385be4bc0b2b9414f606baa6f55db60b232f221","size":300000,"chunk_bytes":65536}},"layers":[{"blob":"layer-1","frame":0,"unpacked":400000}],"channels":{"layer-1":1},"deadline_s":599.5,"trial":null,"provenance":{},"manifest":{"manifest":{"version":1,"what":"task","federation":"home","run":"run-1","round":3,"attempt":4,"device":"pi-3","tier":2,"ratio":"0.5","sha256":"5570a3cf02207f1d352d2cfea385be4bc0b2b9414f606baa6f55db60b232f221","spec_sha256":"5f5751b059789199e955c501026159a138001a3949768fae7975dbeff346d49a","parent_sha256":"1b1c710d2a8092f41088d53fd665c74ec0048ee40c6411264ce927b450785c2a","issued_at":1700000000},"key":"8fa3aab2faa9b79e0a0398da5b5abd0780142442a5be80b9a64608d718cb1fcd","signature":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}',900);
INSERT INTO "tasks" VALUES('pi-4',5,'{"kind":"task","protocol":1,"federation":"home","run":"run-1","round":3,"attempt":5,"action":"deliver","tier":2,"ratio":0.5,"model":{"name":"two-nn","input_shape":[1,8,8],"num_classes":10},"preprocessing":{"scale":16.0,"mean":[0.5],"std":[0.25],"class_names":["zero","one"]},"spec":{"kept":{"conv2":32,"linear1":[4,0,2]}},"personal":null,"returned":null,"masking":null,"depot":{"address":"https://store.lan:9000/home/","above":50000000,"resumable":true},"addresses":{"get":{"state":"https://store.lan:9000/home/blobs/5570a3cf02207f1d352d2cfea385be4bc0b2b9414f606baa6f55db60b232f221?signature=1"},"put":null},"uplink":[],"training":null,"blobs":{"layer-1":{"digest":"5570a3cf02207f1d352d2cfea385be4bc0b2b9414f606baa6f55db60b232f221","size":300000,"chunk_bytes":65536},"graph":{"digest":"5570a3cf02207f1d352d2cfea385be4bc0b2b9414f606baa6f55db60b232f221","size":70000,"chunk_bytes":262144}},"layers":[{"blob":"layer-1","frame":0,"unpacked":400000}],"channels":{"layer-1":1},"deadline_s":599.5,"trial":{"examples":100,"accuracy_drop":0.02,"latency_ratio":1.5,"error_rate":0.01,"crashes":0,"watch_s":0.0},"provenance":{"git":"c405d1a"},"manifest":{"manifest":{"version":1,"what":"task","federation":"home","run":"run-1","round":3,"attempt":4,"device":"pi-3","tier":2,"ratio":"0.5","sha256":"5570a3cf02207f1d352d2cfea385be4bc0b2b9414f606baa6f55db60b232f221","spec_sha256":"5f5751b059789199e955c501026159a138001a3949768fae7975dbeff346d49a","parent_sha256":"1b1c710d2a8092f41088d53fd665c74ec0048ee40c6411264ce927b450785c2a","issued_at":1700000000},"key":"8fa3aab2faa9b79e0a0398da5b5abd0780142442a5be80b9a64608d718cb1fcd","signature":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}',900);
CREATE TABLE undone (
    round INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, state_sha256 TEXT NOT NULL, left_out TEXT NOT NULL,
    why TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE updates (
    attempt INTEGER NOT NULL, round INTEGER NOT NULL, device TEXT NOT NULL, digest TEXT NOT NULL,
    bytes INTEGER NOT NULL, examples INTEGER NOT NULL, ratio REAL, message TEXT NOT NULL, reason TEXT,
    norms TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (attempt, device, digest));
COMMIT;
