-- An index of selectors by conditions that an item must meet (broker/selectors/conditions.py). A condition, `KEY=TEXT` or `KEY#NUMBER`,
-- -> subids, each followed by a blank; `*` has selectors that require no equality.
local conditions = {ANY = '*', MOST = 200}
local TEXTS = {'p.message-id', 'p.user-id', 'p.group-id', 'p.content-type'}

-- Returns the groups of conditions before a program, and where the program begins.
function conditions.read(text)
  local found, at = {}, 1
  while string.sub(text, at, at) == 'g' do
    local length, from = string.match(text, '^g(%d+):()', at)
    local group = {}
    at = from + length
    while from < at do
      local size, begin = string.match(text, '^k(%d+):()', from)
      from = begin + size
      group[#group + 1] = string.sub(text, begin, from - 1)
    end
    found[#found + 1] = group
  end
  return found, at
end

-- Returns the size of a group's present entries.
local function indexed_bytes(group)
  local bytes = 0
  for _, subids in ipairs(redis.call('HMGET', key.conditions, unpack(group))) do bytes = bytes + #(subids or '') end
  return bytes
end

-- One group that leads to the selector suffices: choose the one with the fewest other selectors.
function conditions.put(subid, groups)
  local best, fewest = {conditions.ANY}, nil
  for _, group in ipairs(groups) do
    local bytes = indexed_bytes(group)
    if not fewest or bytes < fewest then best, fewest = group, bytes end
  end
  for _, condition in ipairs(best) do
    redis.call('HSET', key.conditions, condition, (redis.call('HGET', key.conditions, condition) or '') .. subid .. ' ')
  end
end

local function remove_entry(subid, condition)
  local subids, others = redis.call('HGET', key.conditions, condition), {}
  if not subids then return end
  for each in string.gmatch(subids, '%d+') do
    if each ~= subid then others[#others + 1] = each .. ' ' end
  end
  if #others > 0 then
    redis.call('HSET', key.conditions, condition, table.concat(others))
  else
    redis.call('HDEL', key.conditions, condition)
  end
end

function conditions.remove(subid, groups)
  remove_entry(subid, conditions.ANY)
  for _, group in ipairs(groups) do
    for _, condition in ipairs(group) do remove_entry(subid, condition) end
  end
end

local function add(asked, name, value)
  if not value then return end
  asked[#asked + 1] = name .. '=' .. value
  local number = compare.number(value)
  if number then asked[#asked + 1] = string.format('%s#%.17g', name, number + 0) end
end

-- Returns the subids whose selectors an item may match, as a list and as a set; no others match it. Returns nil for an item with too many
-- headers.
function conditions.met(entry)
  local asked, found, known = {conditions.ANY}, {}, {}
  for name, value in pairs(entry.headers) do
    if #asked > conditions.MOST then return nil end
    add(asked, 'a.' .. name, value)
  end
  for _, name in ipairs(TEXTS) do add(asked, name, entry.value(name)) end
  for _, subids in ipairs(redis.call('HMGET', key.conditions, unpack(asked))) do
    for subid in string.gmatch(subids or '', '%d+') do
      if not known[subid] then
        known[subid] = true
        found[#found + 1] = subid
      end
    end
  end
  compare.count((#asked + #found) / 4)
  return found, known
end
