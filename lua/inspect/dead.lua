#!lua flags=no-writes
-- Show the oldest dead letters: give a partition of the node that they went to. Reads only: Redis refuses a write.
--   redis-cli --eval lua/inspect/dead.lua 'sq:{jobs/dead@5b1c2f60/0}:meta' , 20
local prefix, number = string.match(KEYS[1] or '', '^(sq:{.+@.+/(%d+)}:)[%w_]+$')
if not prefix then return redis.error_reply("ERR name a key of the partition, such as 'sq:{jobs/dead@5b1c2f60/0}:meta'") end
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
local lines = {}
for _, raw in ipairs(redis.call('XRANGE', prefix .. 'log', '-', '+', 'COUNT', math.min(tonumber(ARGV[1] or 20) or 20, 1000))) do
  local fields = {}
  for i = 1, #raw[2], 2 do fields[raw[2][i]] = raw[2][i + 1] end
  local envelope = opened(fields.body)
  local headers = envelope and envelope[4] or {}
  local function told(name) return headers['stanzaq-dead-' .. name] or '?' end
  lines[#lines + 1] = string.format('%s: item %s of %s, %s, %s attempts, last held by %s', fields.id or number .. '-' .. raw[1],
    told('item'), told('node'), told('reason'), told('attempts'), told('holder'))
end
return lines
