-- The partition's clock, options and counters: read once when a script starts, written once when it ends.
-- CALL: kept = nil, kept_bytes = nil, trim = nil, lost = nil, session = nil, micros = nil, now = nil, stamp = nil, lock_ms = nil, deadline = nil, deadline_text = nil, max_deliveries = nil, dead_letters = nil, cursor = nil, tail = nil, token = nil, journal_max = nil, confirms = nil, several = nil, ordered = nil, fence = nil, owner = nil, pools = nil, paused = nil, multi = nil, selects = nil, hinted = nil, wants_since = nil, past_pools = nil, before = nil, log_only = nil, keep_ms = nil, keep_items = nil, keep_bytes = nil, keeps = nil, streams = nil, logged = nil
local partition = {}

local function logged()
  return string.format('%d %d ', call.partition_kept, call.partition_kept_bytes) .. call.partition_trim .. ' ' .. call.partition_lost
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
  call.partition_session = session()
  local meta = redis.call('HMGET', key.meta, 'revision', 'state', 'lock_ms', 'max_deliveries', 'dead_letters',
    'cursor', 'tail', 'token', 'journal_max', 'confirms', 'partitions', 'ordered', 'queueing', 'keep_ms', 'keep_items',
    'keep_bytes', 'kept', 'kept_bytes', 'trim', 'lost', 'streams',
    'fence', 'owner', 'pools', 'paused', 'multi', 'selects', 'hinted', 'session/' .. (arg.frontend or ''), 'wants_since',
    'past_pools')
  if meta[2] == 'deleted' then return {'deleted'} end
  if not meta[1] then return {'gone'} end
  if arg.revision ~= '' and arg.revision ~= meta[1] then return {'stale', meta[1]} end
  if meta[29] and call.partition_session < tonumber(meta[29]) then return {'stale', meta[1]} end
  call.partition_micros = clock.micros()
  call.partition_now = math.floor(call.partition_micros / 1000)
  call.partition_stamp = string.format('%d', call.partition_now)
  call.partition_lock_ms = tonumber(meta[3])
  call.partition_deadline = call.partition_now + call.partition_lock_ms
  call.partition_deadline_text = string.format('%d', call.partition_deadline)
  call.partition_max_deliveries = tonumber(meta[4])
  call.partition_dead_letters = meta[5] == '1'
  call.partition_cursor, call.partition_tail = meta[6], meta[7]
  call.partition_token = tonumber(meta[8])
  call.partition_journal_max = meta[9]
  call.partition_confirms = meta[10] == '1'
  call.partition_several = meta[11] and meta[11] ~= '1'
  call.partition_ordered = meta[12] == '1'
  call.partition_fence, call.partition_owner, call.partition_pools = tonumber(meta[22] or 0), meta[23], meta[24]
  -- Its owners want nothing handed out for now; what is held may be ended all the same.
  call.partition_paused = meta[25] == '1'
  -- Somebody has had more than one subscription here; somebody selects; a publisher has asked for a delay, a priority or an end.
  call.partition_multi, call.partition_selects, call.partition_hinted = meta[26] == '1', meta[27] == '1', meta[28] == '1'
  call.partition_wants_since, call.partition_past_pools = meta[30], meta[31]
  call.partition_before = meta[6] .. ' ' .. meta[7] .. ' ' .. meta[8]
  -- The log as a stream: what is kept of it (0: no limit of this kind), how much that is, up to where it was looked
  -- through for what may go, and the last that went.
  call.partition_log_only = meta[13] == '0'
  call.partition_keep_ms, call.partition_keep_items = tonumber(meta[14] or 0), tonumber(meta[15] or 0)
  call.partition_keep_bytes = tonumber(meta[16] or 0)
  call.partition_keeps = call.partition_keep_ms + call.partition_keep_items + call.partition_keep_bytes > 0
  call.partition_kept, call.partition_kept_bytes = tonumber(meta[17] or 0), tonumber(meta[18] or 0)
  call.partition_trim, call.partition_lost = meta[19] or '0-0', meta[20] or '0-0'
  call.partition_streams = meta[21] == '1'
  call.partition_logged = logged()
  return nil
end

-- What a partition does from now on: `confirms`, `streams`, `multi`, `selects` or `hinted`. Until somebody asks for it, no script looks for it.
function partition.turn_on(what)
  if not call['partition_' .. what] then redis.call('HSET', key.meta, what, '1') end
  call['partition_' .. what] = true
end

-- The next number of the partition: for a token, a sequence, a fence or a count. No number is given twice, also when Redis has
-- lost its last second (guarantee 10). A counter alone would go back with the data and give the lost numbers again. So the
-- number is Redis's time in microseconds, or one more than the last number if that is larger. A script needs more than a
-- microsecond for each number, so numbers are never ahead of the clock by more than those of one script. The time is below
-- 2^53, and so exact in Lua, until the year 2255.
function partition.next_number()
  call.partition_token = math.max(call.partition_token + 1, call.partition_micros)
  return call.partition_token
end

function partition.save()
  local token = string.format('%d', call.partition_token)
  if call.partition_cursor .. ' ' .. call.partition_tail .. ' ' .. token ~= call.partition_before then
    redis.call('HSET', key.meta, 'cursor', call.partition_cursor, 'tail', call.partition_tail, 'token', token)
  end
  if logged() ~= call.partition_logged then
    redis.call('HSET', key.meta, 'kept', string.format('%d', call.partition_kept),
      'kept_bytes', string.format('%d', call.partition_kept_bytes), 'trim', call.partition_trim, 'lost', call.partition_lost)
  end
end
