-- What an envelope says beside its body: `[version, type, body, headers]` in msgpack, as broker/codec.py writes it. By hand, for
-- Redis's own reader knows no bytes, and the body may be large.
local headers = {}

-- How long the text or bytes at `at` are, or of how many pairs the map is, and where they begin.
local function sized(packed, at)
  local mark = string.byte(packed, at) or 0
  -- A number, as which the most frequent type is written.
  if mark < 0x80 then return 0, at + 1 end
  if mark >= 0xa0 and mark <= 0xbf then return mark - 0xa0, at + 1 end
  if mark >= 0x80 and mark <= 0x8f then return mark - 0x80, at + 1 end
  -- Bytes (c4 to c6), texts (d9 to db) and maps (de and df) say their length in 1, 2 or 4 bytes.
  local length, width = 0, 4
  if mark == 0xc4 or mark == 0xd9 then width = 1 elseif mark == 0xc5 or mark == 0xda or mark == 0xde then width = 2 end
  for i = 1, width do length = length * 256 + (string.byte(packed, at + i) or 0) end
  return length, at + 1 + width
end

-- The headers by name, and the type of the body, without the mark of broker/payloads.py; of what is no envelope none.
function headers.read(packed)
  local found, kind, parts = {}, 'application/xml', string.byte(packed, 1)
  if parts ~= 0x93 and parts ~= 0x94 then return found, nil end
  local length, at = sized(packed, 3)
  if length > 0 then kind = string.gsub(string.sub(packed, at, at + length - 1), '^application/xml;$', kind) end
  length, at = sized(packed, at + length)
  if parts == 0x93 then return found, kind end
  local pairs_left, name = nil, nil
  pairs_left, at = sized(packed, at + length)
  while pairs_left > 0 and at <= #packed do
    length, at = sized(packed, at)
    name, at = string.sub(packed, at, at + length - 1), at + length
    length, at = sized(packed, at)
    found[name], at = string.sub(packed, at, at + length - 1), at + length
    pairs_left = pairs_left - 1
  end
  return found, kind
end
