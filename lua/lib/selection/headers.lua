-- Reads the headers and the type of an envelope, `[version, type, body, headers]` in msgpack, as broker/codec.py writes it. By hand:
-- Redis's cmsgpack cannot read bytes, and the body may be large.
local headers = {}

-- Returns the length of the text or bytes at `at`, or the number of pairs of the map, and where they begin.
local function read_size(packed, at)
  local mark = string.byte(packed, at) or 0
  -- A number: the most frequent type is written as one.
  if mark < 0x80 then return 0, at + 1 end
  if mark >= 0xa0 and mark <= 0xbf then return mark - 0xa0, at + 1 end
  if mark >= 0x80 and mark <= 0x8f then return mark - 0x80, at + 1 end
  -- Bytes (c4 to c6), texts (d9 to db) and maps (de and df) have their length in 1, 2 or 4 bytes.
  local length, width = 0, 4
  if mark == 0xc4 or mark == 0xd9 then width = 1 elseif mark == 0xc5 or mark == 0xda or mark == 0xde then width = 2 end
  for i = 1, width do length = length * 256 + (string.byte(packed, at + i) or 0) end
  return length, at + 1 + width
end

-- Returns a text as msgpack, with its length in four bytes.
local function packed_text(text)
  local length = #text
  return string.char(0xdb, math.floor(length / 16777216), math.floor(length / 65536) % 256, math.floor(length / 256) % 256, length % 256) .. text
end

-- Returns an envelope with one more header, and anything else as it is.
function headers.add(packed, name, text)
  local parts = string.byte(packed, 1)
  if parts ~= 0x93 and parts ~= 0x94 then return packed end
  local length, at = read_size(packed, 3)
  length, at = read_size(packed, at + length)
  local ends, count, from = at + length, 0, at + length
  if parts == 0x94 then count, from = read_size(packed, ends) end
  count = count + 1
  return string.char(0x94) .. string.sub(packed, 2, ends - 1) .. string.char(0xde, math.floor(count / 256), count % 256)
    .. string.sub(packed, from) .. packed_text(name) .. packed_text(text)
end

-- Returns the headers by name, and the type of the body without the mark of broker/payloads.py; none if it is no envelope.
function headers.read(packed)
  local found, kind, parts = {}, 'application/xml', string.byte(packed, 1)
  if parts ~= 0x93 and parts ~= 0x94 then return found, nil end
  local length, at = read_size(packed, 3)
  if length > 0 then kind = string.gsub(string.sub(packed, at, at + length - 1), '^application/xml;$', kind) end
  length, at = read_size(packed, at + length)
  if parts == 0x93 then return found, kind end
  local pairs_left, name = nil, nil
  pairs_left, at = read_size(packed, at + length)
  while pairs_left > 0 and at <= #packed do
    length, at = read_size(packed, at)
    name, at = string.sub(packed, at, at + length - 1), at + length
    length, at = read_size(packed, at)
    found[name], at = string.sub(packed, at, at + length - 1), at + length
    pairs_left = pairs_left - 1
  end
  return found, kind
end
