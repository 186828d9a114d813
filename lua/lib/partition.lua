-- The partition's clock, options and counters: read once when a script starts, written once when it ends.
-- CALL: kept = nil, kept_bytes = nil, trim = nil, lost = nil, session = nil, micros = nil, now = nil, stamp = nil, lock_ms = nil, deadline = nil, deadline_text = nil, max_deliveries = nil, dead_letters = nil, cursor = nil, tail = nil, token = nil, journal_max = nil, confirms = nil, several = nil, ordered = nil, fence = nil, owner = nil, pools = nil, paused = nil, multi = nil, selects = nil, hinted = nil, wants_since = nil, past_pools = nil, before = nil, log_only = nil, keep_ms = nil, keep_items = nil, keep_bytes = nil, keeps = nil, streams = nil, logged = nil
local partition = {}

local function logged()
  return string.format('%d %d ', call.partition.kept, call.partition.kept_bytes) .. call.partition.trim .. ' ' .. call.partition.lost
end

-- A frontend that has lost replies calls itself `NAME/SESSION`; 0 before that. It is `NAME` to everything else.
local function session()
  local slash = string.find(arg.frontend or '', '/', 1, true)
  if not slash then return 0 end
  local number = tonumber(string.sub(arg.frontend, slash + 1))
  arg.frontend = string.sub(arg.frontend, 1, slash - 1)
  return number
end

-- Gives nil when the caller may go on, else the reply that sends it away: `gone` (never opened), `deleted`, or `stale`
-- with the revision in force when the caller judged by another one. A call of a session that its caller has ended is stale too:
-- it lost the replies of that session and has looked for what they said, so what runs late would be heard by nobody.
function partition.load()
  call.partition.session = session()
  local meta = redis.call('HMGET', key.meta, 'revision', 'state', 'lock_ms', 'max_deliveries', 'dead_letters',
    'cursor', 'tail', 'token', 'journal_max', 'confirms', 'partitions', 'ordered', 'queueing', 'keep_ms', 'keep_items',
    'keep_bytes', 'kept', 'kept_bytes', 'trim', 'lost', 'streams',
    'fence', 'owner', 'pools', 'paused', 'multi', 'selects', 'hinted', 'session/' .. (arg.frontend or ''), 'wants_since',
    'past_pools')
  if meta[2] == 'deleted' then return {'deleted'} end
  if not meta[1] then return {'gone'} end
  if arg.revision ~= '' and arg.revision ~= meta[1] then return {'stale', meta[1]} end
  if meta[29] and call.partition.session < tonumber(meta[29]) then return {'stale', meta[1]} end
  call.partition.micros = clock.micros()
  call.partition.now = math.floor(call.partition.micros / 1000)
  call.partition.stamp = string.format('%d', call.partition.now)
  call.partition.lock_ms = tonumber(meta[3])
  call.partition.deadline = call.partition.now + call.partition.lock_ms
  call.partition.deadline_text = string.format('%d', call.partition.deadline)
  call.partition.max_deliveries = tonumber(meta[4])
  call.partition.dead_letters = meta[5] == '1'
  call.partition.cursor, call.partition.tail = meta[6], meta[7]
  call.partition.token = tonumber(meta[8])
  call.partition.journal_max = meta[9]
  call.partition.confirms = meta[10] == '1'
  call.partition.several = meta[11] and meta[11] ~= '1'
  call.partition.ordered = meta[12] == '1'
  call.partition.fence, call.partition.owner, call.partition.pools = tonumber(meta[22] or 0), meta[23], meta[24]
  -- Its owners want nothing handed out for now; what is held may be ended all the same.
  call.partition.paused = meta[25] == '1'
  -- Somebody has had more than one subscription here; somebody selects; a publisher has asked for a delay, a priority or an end.
  call.partition.multi, call.partition.selects, call.partition.hinted = meta[26] == '1', meta[27] == '1', meta[28] == '1'
  call.partition.wants_since, call.partition.past_pools = meta[30], meta[31]
  call.partition.before = meta[6] .. ' ' .. meta[7] .. ' ' .. meta[8]
  -- The log as a stream: what is kept of it (0: no limit of this kind), how much that is, up to where it was looked
  -- through for what may go, and the last that went.
  call.partition.log_only = meta[13] == '0'
  call.partition.keep_ms, call.partition.keep_items = tonumber(meta[14] or 0), tonumber(meta[15] or 0)
  call.partition.keep_bytes = tonumber(meta[16] or 0)
  call.partition.keeps = call.partition.keep_ms + call.partition.keep_items + call.partition.keep_bytes > 0
  call.partition.kept, call.partition.kept_bytes = tonumber(meta[17] or 0), tonumber(meta[18] or 0)
  call.partition.trim, call.partition.lost = meta[19] or '0-0', meta[20] or '0-0'
  call.partition.streams = meta[21] == '1'
  call.partition.logged = logged()
  return nil
end

-- What a partition does from now on: `confirms`, `streams`, `multi`, `selects` or `hinted`. Until somebody asks for it, no script looks for it.
function partition.turn_on(what)
  if not call.partition[what] then redis.call('HSET', key.meta, what, '1') end
  call.partition[what] = true
end

-- The next number of the partition: for a token, a sequence, a fence or a count. No number is given twice, also when Redis has
-- lost its last second (guarantee 10). A counter alone would go back with the data and give the lost numbers again. So the
-- number is Redis's time in microseconds, or one more than the last number if that is larger. A script needs more than a
-- microsecond for each number, so numbers are never ahead of the clock by more than those of one script. The time is below
-- 2^53, and so exact in Lua, until the year 2255.
function partition.next_number()
  call.partition.token = math.max(call.partition.token + 1, call.partition.micros)
  return call.partition.token
end

function partition.save()
  local token = string.format('%d', call.partition.token)
  if call.partition.cursor .. ' ' .. call.partition.tail .. ' ' .. token ~= call.partition.before then
    redis.call('HSET', key.meta, 'cursor', call.partition.cursor, 'tail', call.partition.tail, 'token', token)
  end
  if logged() ~= call.partition.logged then
    redis.call('HSET', key.meta, 'kept', string.format('%d', call.partition.kept),
      'kept_bytes', string.format('%d', call.partition.kept_bytes), 'trim', call.partition.trim, 'lost', call.partition.lost)
  end
end
