#!lua flags=no-writes
-- Show a node, or what one of its partitions holds. Reads only: Redis refuses a write.
--   redis-cli --eval lua/inspect/node.lua 'sq:{jobs}:node'
--   redis-cli --eval lua/inspect/node.lua 'sq:{jobs@8e71964d/0}:meta'
local prefix, tag = string.match(KEYS[1] or '', '^(sq:{(.+)}:)[%w_]+$')
if not prefix then return redis.error_reply("ERR name a key of the node, such as 'sq:{jobs}:node'") end
local lines = {}
local function say(name, value) lines[#lines + 1] = name .. ' ' .. tostring(value) end
local function pairs_of(key)
  local found = redis.call('HGETALL', prefix .. key)
  for i = 1, #found, 2 do say(key .. ' ' .. found[i], found[i + 1]) end
end

local function node()
  local life = redis.call('HGET', prefix .. 'node', 'incarnation')
  if not life then return false end
  pairs_of('node')
  pairs_of('options')
  say('affiliations', redis.call('HLEN', prefix .. 'affiliations'))
  pairs_of('members')
  local count = tonumber(redis.call('HGET', prefix .. 'options', 'stanzaq#partitions') or 1)
  say('partitions', count)
  say('first partition', string.format('sq:{%s@%s/0}:meta', tag, life))
  return true
end

local function partition()
  local meta = redis.call('HMGET', prefix .. 'meta', 'revision', 'state', 'kept', 'fence', 'owner', 'cursor', 'tail', 'token')
  if not (meta[1] or meta[2]) then return false end
  local function size(command, key) return redis.call(command, prefix .. key) end
  local stored = size('XLEN', 'log') - size('HLEN', 'replaced') - size('HLEN', 'parked') - (tonumber(meta[3]) or 0)
  local locked, dying = size('HLEN', 'inflight'), size('HLEN', 'handover')
  say('waiting', math.max(0, stored - locked - dying))
  say('  delayed', size('ZCARD', 'delayed'))
  say('  blocked', size('ZCARD', 'blocked'))
  say('  came back', size('ZCARD', 'ready'))
  say('  of another priority', redis.call('ZCOUNT', prefix .. 'ranked', 0, 9))
  say('  with an end', size('ZCARD', 'ends'))
  say('  passed over', redis.call('ZLEXCOUNT', prefix .. 'passed', '[ ', '(!'))
  say('in flight', locked)
  say('on the way to the dead letters', dying)
  say('kept for readers', meta[3] or 0)
  say('subscribers', size('HLEN', 'subscribers'))
  say('  who select', size('HLEN', 'selectors'))
  say('  with free credit', size('ZCARD', 'turns'))
  say('readers', size('HLEN', 'readers'))
  say('journal', size('XLEN', 'journal'))
  say('owner', meta[5] or 'nobody')
  say('fence', meta[4] or 0)
  say('revision', meta[1])
  say('cursor', meta[6])
  say('tail', meta[7])
  say('token', meta[8])
  if meta[2] then say('state', meta[2]) end
  return true
end

local there
if string.find(tag, '@', 1, true) then there = partition() else there = node() end
if not there then return redis.error_reply('ERR there is nothing at ' .. KEYS[1]) end
return lines
