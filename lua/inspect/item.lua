#!lua flags=no-writes
-- Show an item with its payload as JSON. Reads only: Redis refuses a write.
--   redis-cli --raw --eval lua/inspect/item.lua 'sq:{jobs@8e71964d/0}:meta' , ITEM
local prefix, number = string.match(KEYS[1] or '', '^(sq:{.+@.+/(%d+)}:)[%w_]+$')
local item = ARGV[1]
if not (prefix and item) then
  return redis.error_reply("ERR name a key of the partition and an item: 'sq:{jobs@8e71964d/0}:meta' , ITEM")
end
local position = redis.call('HGET', prefix .. 'index', item)
  or string.match(item, '^' .. number .. '%-([1-9]%d*%-%d+)$')
local function entry(log_id)
  local raw = log_id and redis.call('XRANGE', prefix .. 'log', log_id, log_id)[1]
  if not raw then return nil end
  local found = {log_id = raw[1]}
  for i = 1, #raw[2], 2 do found[raw[2][i]] = raw[2][i + 1] end
  return found
end
local lock = position and redis.call('HGET', prefix .. 'inflight', position)
local log_id = lock and string.match(lock, '^[^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+)')
  or position and redis.call('HGET', prefix .. 'replaced', position) or position
local found = entry(log_id)
if not found then return redis.error_reply('ERR the partition has no item ' .. item) end

local lines = {}
local function say(name, value) lines[#lines + 1] = name .. ' ' .. tostring(value) end
local dying = redis.call('HGET', prefix .. 'handover', position)
local delayed = redis.call('ZSCORE', prefix .. 'delayed', position)
say('position', position)
say('state', lock and 'locked' or dying and 'dying' or delayed and 'delayed' or 'waiting')
say('published', string.match(found.log_id, '^%d+'))
say('publisher', found.by)
if found.key then say('group key', found.key) end
if found.hints then say('after, priority and end', found.hints) end
if lock then
  local frontend, token, attempt, since, length, rest =
    string.match(lock, '^([^ ]+) [^ ]+ ([^ ]+) ([^ ]+) [^ ]+ [^ ]+ ([^ ]+) [^ ]+ ([^ ]+) (.*)$')
  say('holder', string.sub(rest, 1, tonumber(length)))
  say('token', token)
  say('attempt', attempt)
  say('since', since)
  say('until', redis.call('ZSCORE', prefix .. 'deadlines', position))
  say('frontend', frontend)
end
if delayed then say('delayed until', delayed) end
if dying then say('dying', dying) end
local history = redis.call('HGET', prefix .. 'history', position)
if history then say('attempts and last holders', history) end
if redis.call('HEXISTS', prefix .. 'parked', position) == 1 then say('parked', 'a later version waits for the lock to end') end

-- `[version, type, body, headers]` in msgpack. Redis reads no bytes (c4 to c6), and texts (d9 to db) are laid out alike.
local function opened(packed)
  local first = string.byte(packed, 3) or 0
  local at = 4
  if first >= 0xa0 and first <= 0xbf then at = at + first - 0xa0 elseif first == 0xd9 then at = at + 1 + string.byte(packed, 4) end
  local mark = string.byte(packed, at) or 0
  if mark < 0xc4 or mark > 0xc6 then return nil end
  local read, envelope = pcall(cmsgpack.unpack, string.sub(packed, 1, at - 1) .. string.char(mark + 21) .. string.sub(packed, at + 1))
  return read and type(envelope) == 'table' and type(envelope[3]) == 'string' and envelope or nil
end
local envelope = opened(found.body)
if not envelope then
  say('payload', 'is no envelope of this program')
  return lines
end
local body, text = envelope[3], {}
-- What is left when all that may be UTF-8 is taken out.
local rest = string.gsub(body, '[\194-\244][\128-\191]+', '')
if string.find(rest, '[%z\1-\8\11\12\14-\31\127-\255]') then
  -- Not a text: as hexadecimal digits, and not all of a large one.
  text.hex = string.gsub(string.sub(body, 1, 200), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
else
  text.body = body
end
text.type, text.headers, text.bytes = envelope[2] == 0 and 'application/xml' or envelope[2], envelope[4], #body
say('payload', cjson.encode(text))
return lines
