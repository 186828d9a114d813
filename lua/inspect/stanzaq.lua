#!lua name=stanzaq
-- Functions for redis-cli that show queues. Frontends load them; Redis refuses every write that they try.
--   redis-cli FCALL_RO stanzaq_node 0 jobs                                    a node and its partitions
--   redis-cli -c FCALL_RO stanzaq_node 1 'sq:{jobs}:node'                     in a cluster, which needs a key to find the master
--   redis-cli -c FCALL_RO stanzaq_locks 1 'sq:{jobs@8e71964d/1}:meta' 20      one partition, by any key of it
-- Where Redis functions are not allowed, the text without its first line is a script; its first argument is the function's name:
--   redis-cli EVAL_RO "$(tail -n +2 stanzaq.lua)" 0 stanzaq_node jobs
local MOST = 1000

-- Returns the hash tag that the arguments name, and the index of the next argument.
local function parse_arguments(keys, args)
  if keys[1] then return string.match(keys[1], '^sq:{(.+)}:[%w_]+$'), 1 end
  local function escaped(char) return string.format('%%%02X', string.byte(char)) end
  local name = string.gsub(args[1] or '', '[%%{} \t\r\n]', escaped)
  return name ~= '' and name or nil, 2
end

local function is_partition(tag) return string.find(tag, '@.+/%d+$') ~= nil end

-- Returns whether keys with this tag are on another master of the cluster.
local function is_elsewhere(tag)
  local found = redis.pcall('EXISTS', 'sq:{' .. tag .. '}:meta')
  return type(found) == 'table' and string.find(found.err, 'non local key', 1, true) ~= nil
end

-- Returns the tags of the requested partitions, the index of the next argument, and the node's tag if they are all of its partitions; or
-- nil and the error.
local function partitions_asked(keys, args)
  local tag, next_argument = parse_arguments(keys, args)
  if not tag then return nil, 'ERR name a node, such as 0 jobs, or a key of it, such as 1 sq:{jobs}:node' end
  if is_partition(tag) then return {tag}, next_argument end
  if is_elsewhere(tag) then
    return nil, string.format("ERR another master of the cluster has %s: use redis-cli -c with 1 'sq:{%s}:node' instead of 0 %s", tag, tag, tag)
  end
  local life = redis.call('HGET', 'sq:{' .. tag .. '}:node', 'incarnation')
  if not life then return nil, 'ERR there is no node ' .. tag end
  local tags = {}
  for number = 0, tonumber(redis.call('HGET', 'sq:{' .. tag .. '}:options', 'stanzaq#partitions') or 1) - 1 do
    tags[number + 1] = string.format('%s@%s/%d', tag, life, number)
  end
  return tags, next_argument, tag
end

local function elsewhere(key) return 'partition ' .. key .. ' is on another master: use redis-cli -c with this key' end

-- Makes a function that describes a partition, or all partitions of a node. `tell(prefix, argument, say)` describes one partition,
-- with a `tell_node` that describes the node's record: `tell_node(prefix, say)`.
local function about(tell, tell_node)
  return function(keys, args)
    local partitions, next_argument, node = partitions_asked(keys, args)
    if not partitions then return redis.error_reply(next_argument) end
    local lines = {}
    local function say(line) lines[#lines + 1] = line end
    if node and tell_node then tell_node('sq:{' .. node .. '}:', say) end
    for _, partition in ipairs(partitions) do
      local key = 'sq:{' .. partition .. '}:meta'
      if #lines >= MOST then
        say('more: use the key of a partition, such as 1 ' .. key)
        break
      end
      if is_elsewhere(partition) then
        say(elsewhere(key))
      else
        if node and (tell_node or #partitions > 1) then say('partition ' .. key) end
        tell('sq:{' .. partition .. '}:', args[next_argument], say)
      end
    end
    return lines
  end
end

local function at_most(given, usual) return math.max(1, math.min(tonumber(given) or usual, MOST)) end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Reads `[version, type, body, headers]` in msgpack. Redis's cmsgpack cannot read bytes (c4 to c6), so they are turned into texts (d9 to
-- db), which are laid out alike.
local function open(packed)
  local first = string.byte(packed, 3) or 0
  local at = 4
  if first >= 0xa0 and first <= 0xbf then at = at + first - 0xa0 elseif first == 0xd9 then at = at + 1 + string.byte(packed, 4) end
  local mark = string.byte(packed, at) or 0
  if mark < 0xc4 or mark > 0xc6 then return nil end
  local read, envelope = pcall(cmsgpack.unpack, string.sub(packed, 1, at - 1) .. string.char(mark + 21) .. string.sub(packed, at + 1))
  return read and type(envelope) == 'table' and type(envelope[3]) == 'string' and envelope or nil
end

local function fields_of(entry)
  local fields = {log_id = entry[1]}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  return fields
end

local function node_record(prefix, say)
  for _, key in ipairs({'node', 'options', 'members'}) do
    local found = redis.call('HGETALL', prefix .. key)
    for i = 1, #found, 2 do say(key .. ' ' .. found[i] .. ' ' .. found[i + 1]) end
  end
  say('affiliations ' .. redis.call('HLEN', prefix .. 'affiliations'))
end

local function partition_record(prefix, _, say)
  local revision, state, kept, fence, owner, cursor, tail, token =
    unpack(redis.call('HMGET', prefix .. 'meta', 'revision', 'state', 'kept', 'fence', 'owner', 'cursor', 'tail', 'token'))
  if not (revision or state) then return say('nothing: nobody has used it') end
  local function tell(name, value) say(name .. ' ' .. tostring(value)) end
  local function size(command, key) return redis.call(command, prefix .. key) end
  local stored = size('XLEN', 'log') - size('HLEN', 'replaced') - size('HLEN', 'successors') - (tonumber(kept) or 0)
  local locked, dying = size('HLEN', 'inflight'), size('HLEN', 'outbox_items')
  tell('waiting', math.max(0, stored - locked - dying))
  tell('  delayed', size('ZCARD', 'delayed'))
  tell('  dependent', size('HLEN', 'dependents'))
  tell('  blocked', size('ZCARD', 'group_blocked'))
  tell('  came back', redis.call('ZCOUNT', prefix .. 'ready', 0, '+inf'))
  tell('  in a fair order', size('ZCARD', 'fair_items'))
  tell('  of another priority', redis.call('ZCOUNT', prefix .. 'by_priority', 0, 9))
  tell('  with an end', size('ZCARD', 'expirations'))
  tell('  passed over', redis.call('ZLEXCOUNT', prefix .. 'skipped', '[ ', '(!'))
  tell('in flight', locked)
  tell('on the way to the dead letters', dying)
  tell('kept for readers', kept or 0)
  tell('subscribers', size('HLEN', 'subscribers'))
  tell('  who select', size('HLEN', 'selectors'))
  tell('  with free credit', size('ZCARD', 'ready_subscribers'))
  tell('readers', size('HLEN', 'readers'))
  tell('journal', size('XLEN', 'journal'))
  tell('owner', owner or 'nobody')
  tell('fence', fence or 0)
  tell('revision', revision)
  tell('cursor', cursor)
  tell('tail', tail)
  tell('token', token)
  tell('state', state or 'open')
end

-- Lists ms left, token, attempt, item and holder of the locks that end next.
local function locks(prefix, most, say)
  local now = now_ms()
  local ends = redis.call('ZRANGE', prefix .. 'lock_deadlines', 0, at_most(most, 20) - 1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local line = redis.call('HGET', prefix .. 'inflight', ends[i])
    if line then
      local token, attempt, length, rest =
        string.match(line, '^[^ ]+ [^ ]+ ([^ ]+) ([^ ]+) [^ ]+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+) (.*)$')
      say(string.format('%d ms, token %s, attempt %s, ', tonumber(ends[i + 1]) - now, token, attempt)
        .. string.sub(rest, tonumber(length) + 2) .. ', ' .. string.sub(rest, 1, tonumber(length)))
    end
  end
end

-- Lists each subscriber's held items of its credit, failed deliveries and quality of service: those with free credit first, in the order
-- in which they are served.
local function subscribers(prefix, most, say)
  local left = at_most(most, 50)
  local function selects(subid)
    local line = redis.call('HGET', prefix .. 'selectors', subid) or ''
    local length, from = string.match(line, '^(%d+) ()')
    return length and ' selects ' .. string.sub(line, from, from + length - 1) or ''
  end
  for _, where in ipairs({'ready_subscribers', 'idle_subscribers'}) do
    for _, subid in ipairs(redis.call('ZRANGE', prefix .. where, 0, left - 1)) do
      local line = redis.call('HGET', prefix .. 'subscribers', subid)
      if line and left > 0 then
        local credit, bounces, sending, jid = string.match(line, '^(%d+) (%d+) (%w+) (.*)$')
        say(string.format('%d of %s, %s bounces, %s, ', redis.call('ZCOUNT', prefix .. 'locks_by_subscriber', subid, subid), credit, bounces, sending)
          .. jid .. selects(subid))
        left = left - 1
      end
    end
  end
end

-- Lists the oldest dead letters in the node that received them.
local function dead(prefix, most, say)
  local number = string.match(prefix, '/(%d+)}:$')
  for _, entry in ipairs(redis.call('XRANGE', prefix .. 'log', '-', '+', 'COUNT', at_most(most, 20))) do
    local fields = fields_of(entry)
    local envelope = open(fields.body)
    local headers = envelope and envelope[4] or {}
    local function told(name) return headers['stanzaq-dead-' .. name] or '?' end
    say(string.format('%s: item %s of %s, %s, %s attempts, last held by %s', fields.id or number .. '-' .. fields.log_id,
      told('item'), told('node'), told('reason'), told('attempts'), told('holder')))
  end
end

-- Returns an item's payload as JSON; binary payloads as hexadecimal digits, cut when large.
local function payload(packed)
  local envelope = open(packed)
  if not envelope then return 'is no envelope of this program' end
  local body, shown = envelope[3], {}
  -- The bytes that are left when everything that may be multi-byte UTF-8 is removed.
  local rest = string.gsub(body, '[\194-\244][\128-\191]+', '')
  if string.find(rest, '[%z\1-\8\11\12\14-\31\127-\255]') then
    shown.hex = string.gsub(string.sub(body, 1, 200), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  else
    shown.body = body
  end
  shown.type, shown.headers, shown.bytes = envelope[2] == 0 and 'application/xml' or envelope[2], envelope[4], #body
  return cjson.encode(shown)
end

-- Returns the state and payload of an item; nil if the partition does not have it.
local function item_in(prefix, id)
  local number = string.match(prefix, '/(%d+)}:$')
  local position = redis.call('HGET', prefix .. 'index', id) or string.match(id, '^' .. number .. '%-([1-9]%d*%-%d+)$')
  if not position then return nil end
  local lock = redis.call('HGET', prefix .. 'inflight', position)
  local log_id = lock and string.match(lock, '^[^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+)')
    or redis.call('HGET', prefix .. 'replaced', position) or position
  local entry = redis.call('XRANGE', prefix .. 'log', log_id, log_id)[1]
  if not entry then return nil end
  local found, lines = fields_of(entry), {}
  local function tell(name, value) lines[#lines + 1] = name .. ' ' .. tostring(value) end
  local dying = redis.call('HGET', prefix .. 'outbox_items', position)
  local delayed = redis.call('ZSCORE', prefix .. 'delayed', position)
  local dependent = redis.call('HGET', prefix .. 'dependents', position)
  tell('position', number .. '-' .. position)
  tell('state', lock and 'locked' or dying and 'dying' or dependent and 'dependent' or delayed and 'delayed' or 'waiting')
  tell('published', string.match(found.log_id, '^%d+'))
  tell('publisher', found.by)
  if found.key then tell('group key', found.key) end
  if found.hints then tell('after, priority and end', found.hints) end
  if lock then
    local frontend, token, attempt, since, length, rest =
      string.match(lock, '^([^ ]+) [^ ]+ ([^ ]+) ([^ ]+) [^ ]+ [^ ]+ ([^ ]+) [^ ]+ ([^ ]+) (.*)$')
    tell('holder', string.sub(rest, 1, tonumber(length)))
    tell('token', token)
    tell('attempt', attempt)
    tell('since', since)
    tell('until', redis.call('ZSCORE', prefix .. 'lock_deadlines', position))
    tell('frontend', frontend)
  end
  if delayed then tell('delayed until', delayed) end
  if dependent then tell('parents', dependent) end
  if dying then tell('dying', dying) end
  local history = redis.call('HGET', prefix .. 'history', position)
  if history then
    tell('attempts and last holders', string.match(history, '^[^\n]*'))
    for attempt in string.gmatch(history, '\n([^\n]+)') do tell('ended', attempt) end
  end
  if redis.call('HEXISTS', prefix .. 'successors', position) == 1 then tell('parked', 'a later version waits for the lock to end') end
  tell('payload', payload(found.body))
  return lines
end

local function item(keys, args)
  local partitions, next_argument = partitions_asked(keys, args)
  if not partitions then return redis.error_reply(next_argument) end
  local id, left = args[next_argument], ''
  if not id then return redis.error_reply('ERR name the item, such as 0 jobs ITEM') end
  for _, partition in ipairs(partitions) do
    if is_elsewhere(partition) then
      left = '; ' .. elsewhere('sq:{' .. partition .. '}:meta')
    else
      local lines = item_in('sq:{' .. partition .. '}:', id)
      if lines then return lines end
    end
  end
  return redis.error_reply('ERR there is no item ' .. id .. left)
end

-- Lists how long ago each frontend sent a heartbeat; after three seconds without one it is dead.
local function frontends()
  if is_elsewhere('service') then
    return redis.error_reply("ERR another master of the cluster has them: use redis-cli -c with 1 'sq:{service}:frontends'")
  end
  local now, lines = now_ms(), {}
  local beats = redis.call('ZRANGE', 'sq:{service}:frontends', 0, MOST - 1, 'WITHSCORES')
  for i = 1, #beats, 2 do
    local heard = beats[i + 1] == '0' and 'disconnected, ' or string.format('%d ms ago, ', now - tonumber(beats[i + 1]))
    lines[#lines + 1] = heard .. beats[i]
  end
  return lines
end

local functions = {
  {'stanzaq_node', about(partition_record, node_record), 'NODE: its options, and what each partition holds'},
  {'stanzaq_locks', about(locks), 'NODE [COUNT]: the locks that end next, and who holds them'},
  {'stanzaq_subscribers', about(subscribers), 'NODE [COUNT]: who holds how much of its credit, and who is served next'},
  {'stanzaq_item', item, 'NODE ITEM: its state, its lock, and its payload as JSON'},
  {'stanzaq_dead', about(dead), 'NODE [COUNT]: the oldest letters of a node of dead letters'},
  {'stanzaq_frontends', frontends, 'the frontends, and when each was last heard of'},
}
-- Not `ipairs`: while Redis loads a library, only its own functions exist.
for i = 1, #functions do
  local name, callback, description = functions[i][1], functions[i][2], functions[i][3]
  if redis.register_function then
    -- Partitions of a node are in several slots, of which a master may have more than one.
    redis.register_function{function_name = name, callback = callback, description = description, flags = {'no-writes', 'allow-cross-slot-keys'}}
  elseif name == ARGV[1] then
    return callback(KEYS, {unpack(ARGV, 2)})
  end
end
if not redis.register_function then return redis.error_reply('ERR there is no function ' .. tostring(ARGV[1])) end
